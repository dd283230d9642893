package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"text/tabwriter"
	"time"
)

// Config says what to look at.
type Config struct {
	Dir        string
	KubeletDir string
	Ports      []string
	Names      []string
}

// State is what a finding comes to.
type State string

// The states: fine; works with a loss that Do describes; does not work.
const (
	OK   State = "ok"
	Warn State = "warn"
	Fail State = "fail"
)

// Finding is what was seen of one thing.
type Finding struct {
	What  string `json:"what"`
	State State  `json:"state"`
	Says  string `json:"says"`
	Do    string `json:"do,omitempty"` // empty when there is nothing to do
}

// Look looks at everything. It takes a few seconds on a slow disk.
func (c *Config) Look(ctx context.Context) []Finding {
	all := []Finding{kernel(), fuse()}
	if c.KubeletDir != "" {
		all = append(all, propagation(c.KubeletDir))
	}
	all = append(all, clock(), disk(ctx, c.Dir), space(c.Dir))
	for _, p := range c.Ports {
		all = append(all, port(ctx, p))
	}
	for _, n := range c.Names {
		all = append(all, name(ctx, n))
	}
	return all
}

// port sees whether a port is free.
func port(ctx context.Context, p string) Finding {
	f := Finding{What: "port " + p, State: OK, Says: "free"}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", p))
	if err != nil {
		f.State, f.Says, f.Do = Fail, err.Error(), "find who listens there (ss -ltnp), and stop it or choose another port"
		return f
	}
	l.Close()
	return f
}

// namePatience bounds the question for a name's address.
const namePatience = 5 * time.Second

// name sees whether a name has an address.
func name(ctx context.Context, n string) Finding {
	f := Finding{What: "name " + n, State: OK}
	ctx, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, n)
	if err != nil {
		f.State, f.Says, f.Do = Fail, err.Error(), "see /etc/resolv.conf and the cluster's DNS; replicas find each other by name"
		return f
	}
	f.Says = fmt.Sprintf("%v", addrs)
	return f
}

// verdict is an error if something fails.
func verdict(all []Finding) error {
	n := 0
	for _, f := range all {
		if f.State == Fail {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %d checks failed", n, len(all))
	}
	return nil
}

func print(w io.Writer, all []Finding) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.State, f.What, f.Says)
		if f.Do != "" {
			fmt.Fprintf(t, "\t\t→ %s\n", f.Do)
		}
	}
	return t.Flush()
}

func printJSON(w io.Writer, all []Finding) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(all)
}
