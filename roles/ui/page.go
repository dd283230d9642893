package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// perPage is how many volumes a page lists.
const perPage = 200

// eventsShown is how many Events a page shows.
const eventsShown = 30

// line is one volume in the list.
type line struct {
	Name, Claim, Phase, Ready, Owner string
	Health                           api.Health
	Reason, Message                  string
	Lag                              int64
	Rebuilding                       bool
}

// overview is the list of volumes.
type overview struct {
	Title   string
	Now     string
	Total   int
	Counts  []count
	Health  string // only these are listed; empty: all
	Search  string
	Lines   []line
	From    int
	To      int
	Matches int
	Prev    int // page, 0 for none
	Next    int
	Events  []event
}

type count struct {
	Health api.Health
	N      int
}

type event struct {
	Ago, Kind, Name, Reason, Message string
	Warning                          bool
	Count                            int
}

// detail is one volume.
type detail struct {
	Title      string
	Now        string
	Line       line
	Access     string
	Runtime    string
	Capacity   string
	Quota      string
	Conditions []condition
	Replicas   []replica
	Open       open
	Losses     []api.KnownLoss
	Events     []event
}

type condition struct {
	Type, Status, Reason, Message, Since string
	Waits                                bool // it is what the volume waits for
}

type replica struct {
	Index, Incarnation, Term, Applied, Lag int64
	Node, Phase, Role, Reason, Message     string
	Known                                  bool // its host has said something
}

func lineOf(v *api.ReplicatedVolume) line {
	l := line{
		Name: v.Name, Claim: v.Spec.Claim.Namespace + "/" + v.Spec.Claim.Name, Phase: string(cmp.Or(v.Status.Phase, api.PhaseProvisioning)),
		Ready: cmp.Or(v.Status.Ready, fmt.Sprintf("0/%d", v.Spec.ReplicaCount)),
	}
	l.Health, l.Reason, l.Message = v.Health()
	if v.Status.Owner != nil {
		l.Owner = v.Status.Owner.Node
	}
	for _, r := range v.Status.Replicas {
		l.Lag = max(l.Lag, r.Lag)
		l.Rebuilding = l.Rebuilding || r.Phase == api.ReplicaRebuilding
	}
	return l
}

// list makes the overview: the worst volumes first.
func list(volumes []*api.ReplicatedVolume, events []kube.SeenEvent, health, search string, page int, now time.Time) *overview {
	o := &overview{Title: "Volumes", Now: stamp(now), Total: len(volumes), Health: health, Search: search, Events: recent(events, now)}
	n := map[api.Health]int{}
	var lines []line
	for _, v := range volumes {
		l := lineOf(v)
		n[l.Health]++
		if (health == "" || health == string(l.Health)) && (search == "" || strings.Contains(l.Name+" "+l.Claim, search)) {
			lines = append(lines, l)
		}
	}
	for _, h := range []api.Health{api.Unavailable, api.Degraded, api.Changing, api.Healthy} {
		o.Counts = append(o.Counts, count{h, n[h]})
	}
	slices.SortFunc(lines, func(a, b line) int {
		switch {
		case a.Health.Worse(b.Health):
			return -1
		case b.Health.Worse(a.Health):
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	o.Matches = len(lines)
	page = min(max(page, 1), max(1, (len(lines)+perPage-1)/perPage))
	from, to := (page-1)*perPage, min(page*perPage, len(lines))
	o.Lines = lines[from:to]
	o.From, o.To = min(from+1, to), to
	if page > 1 {
		o.Prev = page - 1
	}
	if to < len(lines) {
		o.Next = page + 1
	}
	return o
}

// about makes the page of one volume.
func about(v *api.ReplicatedVolume, events []kube.SeenEvent, now time.Time) *detail {
	d := &detail{
		Title: "Volume " + v.Name, Now: stamp(now), Line: lineOf(v), Access: string(v.Spec.AccessMode), Runtime: string(v.EffectiveRuntime()),
		Capacity: v.Spec.Capacity.String(), Quota: string(v.Spec.Quota), Losses: v.Status.KnownLoss,
	}
	for _, c := range v.Status.Conditions {
		good := "True"
		if c.Type == api.ConditionStateLost {
			good = "False"
		}
		d.Conditions = append(d.Conditions, condition{
			Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: stamp(c.LastTransitionTime.Time), Waits: string(c.Status) != good,
		})
	}
	for _, r := range v.Spec.Replicas {
		row := replica{Index: int64(r.Index), Incarnation: r.Incarnation, Node: r.Node}
		if st := v.ReplicaStatus(r.Index); st != nil {
			row.Known, row.Phase, row.Role, row.Reason, row.Message = true, string(st.Phase), string(st.Role), st.Reason, st.Message
			row.Term, row.Applied, row.Lag = st.Term, st.AppliedIndex, st.Lag
		}
		d.Replicas = append(d.Replicas, row)
	}
	d.Events = recent(events, now)
	return d
}

// recent are the newest Events about volumes and claims.
func recent(all []kube.SeenEvent, now time.Time) (shown []event) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b kube.SeenEvent) int { return b.Last.Compare(a.Last) })
	for _, e := range all {
		if len(shown) == eventsShown {
			break
		}
		if e.Kind != api.Kind && e.Kind != "PersistentVolumeClaim" {
			continue
		}
		shown = append(shown, event{
			Ago: now.Sub(e.Last).Round(time.Second).String(), Kind: e.Kind, Name: e.Name, Reason: e.Reason, Message: e.Message,
			Warning: e.Warning, Count: max(1, e.Count),
		})
	}
	return shown
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
