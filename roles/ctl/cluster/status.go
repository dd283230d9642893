package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/ctl/table"
	"tak-os.org/tak-replicated/roles/ctl/watch"
)

// Status is what `ctl status --json` prints of a cluster.
type Status struct {
	Health  api.Health     `json:"health"` // of the worst volume
	Volumes []VolumeHealth `json:"volumes"`
}

// VolumeHealth is one volume in a line.
type VolumeHealth struct {
	Name    string          `json:"name"`
	Claim   string          `json:"claim"`
	Health  api.Health      `json:"health"`
	Phase   api.VolumePhase `json:"phase"`
	Ready   string          `json:"ready"`
	Lag     int64           `json:"lag"` // of the replica furthest behind what it knows
	Owner   string          `json:"owner,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// healths sums volumes up, the worst first.
func healths(all []api.ReplicatedVolume) Status {
	s := Status{Health: api.Healthy, Volumes: []VolumeHealth{}}
	for i := range all {
		v := &all[i]
		n := VolumeHealth{
			Name: v.Name, Claim: v.Spec.Claim.Namespace + "/" + v.Spec.Claim.Name, Phase: v.Status.Phase,
			Ready: cmp.Or(v.Status.Ready, fmt.Sprintf("0/%d", v.Spec.ReplicaCount)),
		}
		n.Health, n.Reason, n.Message = v.Health()
		if v.Status.Owner != nil {
			n.Owner = v.Status.Owner.Node
		}
		for _, r := range v.Status.Replicas {
			n.Lag = max(n.Lag, r.Lag)
		}
		if n.Health.Worse(s.Health) {
			s.Health = n.Health
		}
		s.Volumes = append(s.Volumes, n)
	}
	slices.SortFunc(s.Volumes, func(a, b VolumeHealth) int {
		switch {
		case a.Health.Worse(b.Health):
			return -1
		case b.Health.Worse(a.Health):
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return s
}

// ShowStatus prints how the volumes of a cluster are. The error says that one is
// not well.
func ShowStatus(ctx context.Context, k *kube.Client, w io.Writer, asJSON, colour bool) error {
	all, err := k.Volumes(ctx)
	if err != nil {
		return err
	}
	s := healths(all)
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(s); err != nil {
			return err
		}
	} else {
		s.print(w, colour)
	}
	return watch.Verdict("a volume", s.Health)
}

var styles = map[api.Health]table.Style{
	api.Healthy: table.Good, api.Changing: table.Warn, api.Degraded: table.Warn, api.Unavailable: table.Bad,
}

func (s *Status) print(w io.Writer, colour bool) {
	count := map[api.Health]int{}
	t := table.New("VOLUME", "CLAIM", "HEALTH", "PHASE", "READY", "LAG", "OWNER", "WHY")
	for _, v := range s.Volumes {
		count[v.Health]++
		why := v.Reason
		if v.Message != "" {
			why += ": " + v.Message
		}
		t.Row(v.Name, v.Claim, table.Cell{Text: string(v.Health), Style: styles[v.Health]}, cmp.Or(v.Phase, "-"), v.Ready, v.Lag, cmp.Or(v.Owner, "-"), why)
	}
	fmt.Fprintf(w, "%d volumes", len(s.Volumes))
	for _, h := range []api.Health{api.Unavailable, api.Degraded, api.Changing, api.Healthy} {
		if count[h] > 0 {
			fmt.Fprintf(w, ", %s", table.Paint(fmt.Sprintf("%d %s", count[h], h), styles[h], colour))
		}
	}
	fmt.Fprint(w, "\n\n")
	t.Print(w, colour)
}
