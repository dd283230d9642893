package cluster

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/roles/live"
)

// sessions prints what the workers of a volume say now. That nobody can be asked from
// here is told, and no error.
func sessions(ctx context.Context, k *kube.Client, name, domain string, ask live.Asker, w io.Writer) error {
	v, err := k.Volume(ctx, name)
	if err != nil {
		return err
	}
	a, err := live.Ask(ctx, k, v, domain, ask)
	if err != nil {
		fmt.Fprintf(w, "  who has the volume open can't be asked: %v\n", err)
		return nil
	}
	printLive(a, w)
	return nil
}

// printLive tells who has the volume open, and of rebuilds.
func printLive(a *live.Answers, w io.Writer) {
	for _, s := range a.Silent {
		fmt.Fprintf(w, "  not asked: %s\n", s)
	}
	c, used := a.Best(), uint64(0)
	if c != nil {
		used = c.Space.UsedBytes
	}
	for _, r := range a.Reports {
		if r.Rebuild != nil {
			fmt.Fprintf(w, "  %s receives a checkpoint of entry %d: %s, in %d parts\n", r.Replica, r.Rebuild.Index, r.Rebuild.Of(used), r.Rebuild.Parts)
		}
	}
	if c == nil {
		fmt.Fprintln(w, "  no worker that answers coordinates: who has the volume open is not known")
		return
	}
	for _, m := range c.Members {
		if m.Rebuild != nil {
			fmt.Fprintf(w, "  %s is sent a checkpoint of entry %d: %s, in %d parts\n", m.Replica, m.Rebuild.Index, m.Rebuild.Of(used), m.Rebuild.Parts)
		}
	}
	if len(c.Sessions) == 0 {
		fmt.Fprintln(w, "  nobody has the volume open")
		return
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "  OPEN ON\tSINCE\tLOCKS\tOWNER")
	for _, s := range c.Sessions {
		owner := "-"
		if c.Owner != nil && c.Owner.Session == s.ID {
			owner = "yes"
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%s\n", s.Name, s.Opened.UTC().Format("2006-01-02 15:04:05"), s.Locks, owner)
	}
	_ = t.Flush()
}
