package manager

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// unfit says why a node can't take a new replica; empty when it can (D3).
func unfit(n *kube.Node) string {
	switch {
	case !n.Ready:
		return "not Ready"
	case n.Unschedulable:
		return "unschedulable"
	case !n.HasDriver(api.DriverLocal):
		return "driver " + api.DriverLocal + " is not registered"
	case !n.HostReady:
		return "its replica host is not ready"
	}
	return ""
}

// tooFewError says that a volume can't be placed now.
type tooFewError struct {
	need int
	fit  []string
	not  []string // NAME (why)
}

func (e *tooFewError) Error() string {
	text := fmt.Sprintf("%d replicas need %d eligible nodes, there are %d", e.need, e.need, len(e.fit))
	if len(e.fit) > 0 {
		text += " (" + strings.Join(e.fit, ", ") + ")"
	}
	if len(e.not) > 0 {
		text += "; not eligible: " + strings.Join(e.not, ", ")
	}
	return text
}

// place chooses count distinct nodes, those with the fewest replicas first.
// Among equals the volume's name decides, so that volumes spread.
func place(volume string, count int, nodes []kube.Node, load map[string]int, without ...string) ([]string, error) {
	e := &tooFewError{need: count}
	for i := range nodes {
		n := &nodes[i]
		if slices.Contains(without, n.Name) {
			continue
		}
		if why := unfit(n); why != "" {
			e.not = append(e.not, n.Name+" ("+why+")")
			continue
		}
		e.fit = append(e.fit, n.Name)
	}
	slices.Sort(e.fit)
	slices.Sort(e.not)
	if len(e.fit) < count {
		return nil, e
	}
	fit := slices.Clone(e.fit)
	slices.SortFunc(fit, func(a, b string) int {
		return cmp.Or(cmp.Compare(load[a], load[b]), cmp.Compare(rank(volume, a), rank(volume, b)))
	})
	return fit[:count], nil
}

func rank(volume, node string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", volume, node)
	return h.Sum64()
}

// loadOf counts the replicas on each node.
func loadOf(volumes []*api.ReplicatedVolume) map[string]int {
	load := map[string]int{}
	for _, v := range volumes {
		for _, r := range v.Spec.Replicas {
			load[r.Node]++
		}
	}
	return load
}

func pointers(volumes []api.ReplicatedVolume) []*api.ReplicatedVolume {
	all := make([]*api.ReplicatedVolume, len(volumes))
	for i := range volumes {
		all[i] = &volumes[i]
	}
	return all
}
