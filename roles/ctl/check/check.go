package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"
	"time"
)

// Config says what to look at.
type Config struct {
	Dir        string
	KubeletDir string
	Ports      []string // that have to be free; none: those of the manifests should be
	Names      []string // that have to have an address; none: a server should answer
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
	all := append(kernel(), fuse())
	if c.KubeletDir != "" {
		all = append(all, propagation(c.KubeletDir))
	}
	all = append(all, clock(), disk(ctx, c.Dir), space(c.Dir))
	if len(c.Ports) == 0 {
		all = append(all, judgePorts(taken(ctx, nodePorts)))
	}
	for _, p := range c.Ports {
		all = append(all, port(ctx, p))
	}
	if len(c.Names) == 0 {
		all = append(all, dns(ctx))
	}
	for _, n := range c.Names {
		all = append(all, name(ctx, n))
	}
	return all
}

// port sees whether a port is free.
func port(ctx context.Context, p string) Finding {
	f := Finding{What: "port " + p, State: OK, Says: "free"}
	if err := listen(ctx, p); err != nil {
		f.State, f.Says, f.Do = Fail, err.Error(), "find who listens there (ss -ltnp), and stop it or choose another port"
	}
	return f
}

func listen(ctx context.Context, p string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", p))
	if err != nil {
		return err
	}
	return l.Close()
}

// nodePorts are the ports of a node's Pods in the manifests, and the first of a
// replica host's range.
var nodePorts = []string{"9811", "9812", "9813", "9815", "9816", "9817", "9818", "20000"}

// taken are the ports on which somebody listens.
func taken(ctx context.Context, ports []string) (taken []string) {
	for _, p := range ports {
		if listen(ctx, p) != nil {
			taken = append(taken, p)
		}
	}
	return taken
}

// judgePorts does not fail: a Pod has ports of its own, unless it is given the node's
// network.
func judgePorts(taken []string) Finding {
	if len(taken) == 0 {
		return Finding{What: "ports", State: OK, Says: "free: " + strings.Join(nodePorts, " ")}
	}
	return Finding{What: "ports", State: Warn, Says: "taken: " + strings.Join(taken, " "),
		Do: "nothing, as long as Pods have a network of their own, as in the manifests; with hostNetwork, or without Kubernetes, choose others (--metrics-addr, --port-first)"}
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

// clusterName is a name that every cluster's DNS knows, unless it has another domain.
const clusterName = "kubernetes.default.svc.cluster.local"

// dns sees whether anybody answers for names.
func dns(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, clusterName+".")
	return judgeDNS(addrs, err)
}

// judgeDNS does not fail: Pods ask the cluster's DNS, which a node need not know.
func judgeDNS(addrs []string, err error) Finding {
	f := Finding{What: "DNS", State: OK}
	var failed *net.DNSError
	switch {
	case err == nil:
		f.Says = fmt.Sprintf("%s is %v", clusterName, addrs)
	case errors.As(err, &failed) && failed.IsNotFound:
		f.Says = "a server answers; it is not the cluster's, or that has another domain, which is no fault on a node"
	default:
		f.State, f.Says, f.Do = Warn, err.Error(), "see /etc/resolv.conf; in Pods the cluster's DNS has to answer: replicas find each other by the names of their Services"
	}
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
