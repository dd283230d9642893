package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
)

// volumes prints one volume, or all.
func volumes(ctx context.Context, k *kube.Client, name string, asJSON bool, w io.Writer) error {
	var all []api.ReplicatedVolume
	if name != "" {
		v, err := k.Volume(ctx, name)
		if err != nil {
			return err
		}
		all = append(all, *v)
	} else {
		var err error
		if all, err = k.Volumes(ctx); err != nil {
			return err
		}
	}
	slices.SortFunc(all, func(a, b api.ReplicatedVolume) int { return cmp.Compare(a.Name, b.Name) })
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "VOLUME\tCLAIM\tACCESS\tREADY\tRUNTIME\tPHASE\tOWNER")
	for i := range all {
		v := &all[i]
		owner := "-"
		if v.Status.Owner != nil {
			owner = v.Status.Owner.Node
		}
		fmt.Fprintf(t, "%s\t%s/%s\t%s\t%s\t%s\t%s\t%s\n", v.Name, v.Spec.Claim.Namespace, v.Spec.Claim.Name, v.Spec.AccessMode,
			cmp.Or(v.Status.Ready, "-"), cmp.Or(v.Status.Runtime, v.Spec.Runtime), cmp.Or(v.Status.Phase, "-"), owner)
	}
	for i := range all {
		replicas(t, &all[i])
	}
	return t.Flush()
}

// replicas prints a volume's replicas and what it waits for.
func replicas(w io.Writer, v *api.ReplicatedVolume) {
	fmt.Fprintf(w, "\n%s\n  REPLICA\tLIFE\tNODE\tPHASE\tROLE\tTERM\tAPPLIED\tLAG\tNOTE\n", v.Name)
	for _, r := range v.Spec.Replicas {
		st := v.ReplicaStatus(r.Index)
		if st == nil {
			fmt.Fprintf(w, "  %d\t%d\t%s\t-\t-\t-\t-\t-\tits host has said nothing\n", r.Index, r.Incarnation, r.Node)
			continue
		}
		fmt.Fprintf(w, "  %d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", r.Index, r.Incarnation, r.Node, st.Phase, cmp.Or(st.Role, "-"), st.Term, st.AppliedIndex, st.Lag,
			cmp.Or(st.Message, st.Reason))
	}
	for _, r := range v.Spec.Retired {
		fmt.Fprintf(w, "  %d\t%d\t%s\t%s\t-\t-\t-\t-\t%s\n", r.Index, r.Incarnation, r.Node, "Retired", retiredNote(v, &r))
	}
	for _, c := range v.Status.Conditions {
		if bad := c.Type == api.ConditionStateLost; (c.Status == "True") == bad {
			fmt.Fprintf(w, "  %s since %s: %s: %s\n", c.Type, c.LastTransitionTime.UTC().Format("2006-01-02 15:04:05"), c.Reason, c.Message)
		}
	}
}

// retiredNote says what a replaced copy waits for.
func retiredNote(v *api.ReplicatedVolume, r *api.RetiredSpec) string {
	if r.State == api.StateServing {
		return "takes part until its successor does"
	}
	for _, st := range v.Status.Retired {
		if st.Index == r.Index && st.Incarnation == r.Incarnation {
			return cmp.Or(st.Message, st.Reason)
		}
	}
	return "its node has not let go of it"
}
