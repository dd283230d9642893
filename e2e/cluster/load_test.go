//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube/api"
)

// result is one line that a workload printed: the round's number, when it ended, and how long it took or why it failed.
type result struct {
	n      int
	at     time.Time
	failed string
}

// results are all rounds of a Pod's workload so far.
func results(ns, pod string) ([]result, error) {
	out, err := try("-n", ns, "logs", pod)
	if err != nil {
		return nil, err
	}
	var all []result
	for line := range strings.Lines(out) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(words) < 4 {
			continue
		}
		n, errN := strconv.Atoi(words[1])
		at, errAt := strconv.ParseInt(words[2], 10, 64)
		if errN != nil || errAt != nil {
			return nil, fmt.Errorf("%s printed %q", pod, line)
		}
		r := result{n: n, at: time.UnixMilli(at)}
		if words[0] != "ok" {
			r.failed = words[3]
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, errors.New(pod + " has done nothing yet")
	}
	return all, nil
}

// mustResults waits for a workload's log: after a node's return it takes a moment until the log can be had.
func mustResults(t *testing.T, ns, pod string) (all []result) {
	t.Helper()
	eventually(t, settle, "log of "+pod, func() (err error) { all, err = results(ns, pod); return err })
	return all
}

// running waits until each of the Pods has done some rounds.
func running(t *testing.T, ns string, pods ...string) {
	t.Helper()
	for _, p := range pods {
		eventually(t, settle, p+" runs", func() error {
			all, err := results(ns, p)
			if err == nil && len(all) < 10 {
				err = fmt.Errorf("%d rounds", len(all))
			}
			if err != nil {
				err = fmt.Errorf("%w; %s", err, whyNot(ns))
			}
			return err
		})
	}
}

// gap is the longest time between two successful rounds that touches the time from begin to end, and when it began.
func gap(all []result, begin, end time.Time) (longest time.Duration, from time.Time) {
	var last time.Time
	for _, r := range all {
		if r.failed != "" {
			continue
		}
		if !last.IsZero() && r.at.After(begin) && last.Before(end) {
			if d := r.at.Sub(last); d > longest {
				longest, from = d, last
			}
		}
		last = r.at
	}
	if d := end.Sub(last); d > longest {
		longest, from = d, last
	}
	return longest, from
}

// wantSmooth asserts that a workload went on without an error and without a longer pause than it may make on a machine that does nothing else; what
// the machine costs it comes on top.
func wantSmooth(t *testing.T, pod string, all []result, begin, end time.Time, pause time.Duration) {
	t.Helper()
	during := 0
	for _, r := range all {
		if r.at.Before(begin) || r.at.After(end) {
			continue
		}
		during++
		if r.failed != "" {
			t.Errorf("%s, round %d: %s", pod, r.n, r.failed)
		}
	}
	longest, from := gap(all, begin, end)
	stood, crowd := machine.between(begin, end)
	most := time.Duration(float64(pause)*crowd) + stood
	t.Logf("%s: %d rounds in %.0f s, longest pause %.1f s (from %s) of %.1f s; the machine stood still for %.1f s, crowd %.1f",
		pod, during, end.Sub(begin).Seconds(), longest.Seconds(), from.UTC().Format("15:04:05.0"), most.Seconds(), stood.Seconds(), crowd)
	if longest > most {
		t.Errorf("%s paused for %s, longer than %s", pod, longest, most)
	}
}

// wantRecords asserts that a file has every record that was confirmed.
func wantRecords(t *testing.T, ns, pod, file string, all []result) {
	t.Helper()
	confirmed := 0
	for _, r := range all {
		if r.failed == "" {
			confirmed = max(confirmed, r.n+1)
		}
	}
	out := mustInPod(t, ns, pod, "/workload", "check", file)
	if n, err := strconv.Atoi(out); err != nil || n < confirmed {
		t.Errorf("%s has %s records, %d were confirmed", file, out, confirmed)
	}
}

// coordinator is the node whose replica is the volume's coordinator. A node that is away says of itself what it was.
func coordinator(t *testing.T, volume string) (node string) {
	t.Helper()
	eventually(t, settle, "coordinator of "+volume, func() error {
		v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
		if err != nil {
			return err
		}
		term := int64(-1)
		for _, r := range v.Status.Replicas {
			if r.Role == api.RoleCoordinator && r.Term > term {
				node, term = r.Node, r.Term
			}
		}
		if term < 0 {
			return errors.New("no replica is")
		}
		return nil
	})
	return node
}

// inSync waits until all replicas of a volume take part, and have applied what was on a quorum when this began. The volume's phase alone
// is no proof: of a short fault the manager may not have heard.
func inSync(t *testing.T, volume string) {
	t.Helper()
	want := 0.0
	eventually(t, settle, "replicas in sync", func() error {
		v, err := get[api.ReplicatedVolume]("-n", "kube-system", "replicatedvolume", volume)
		if err != nil {
			return err
		}
		if v.Status.Phase != api.PhaseReady {
			return fmt.Errorf("%s, %s replicas ready", v.Status.Phase, v.Status.Ready)
		}
		all, err := standings(&v)
		if err != nil {
			return err
		}
		if want == 0 {
			for _, s := range all {
				want = max(want, s["commit_index"])
			}
		}
		for name, s := range all {
			if s["coordinator_known"] != 1 || s["applied_index"] < want || want == 0 {
				return fmt.Errorf("%s: %v, index %.0f is wanted", name, s, want)
			}
		}
		return nil
	})
}

var standingMetric = regexp.MustCompile(`(?m)^tak_replicated_replica_(applied_index|commit_index|coordinator_known)\{replica="([^"]+)",volume="([^"]+)"\} (\S+)$`)

// standings are what the workers of a volume's replicas themselves say, all of them, by replica.
func standings(v *api.ReplicatedVolume) (map[string]map[string]float64, error) {
	hosts, err := readyPods("kube-system", "csi.replicated.tak-os.org/component="+api.ComponentNode)
	if err != nil {
		return nil, err
	}
	pods := map[string]string{} // of replica hosts, by node
	for _, p := range hosts {
		pods[p.Spec.NodeName] = p.Name
	}
	all := map[string]map[string]float64{}
	for _, r := range v.Spec.Replicas {
		name := api.ReplicaName(v.Name, r.Index)
		at := pods[r.Node] + ":9813"
		if v.EffectiveRuntime() == api.RuntimePod {
			at = name + ":9814"
		}
		out, err := try("get", "--raw", "/api/v1/namespaces/kube-system/pods/"+at+"/proxy/metrics")
		if err != nil {
			return nil, err
		}
		all[name] = map[string]float64{}
		for _, m := range standingMetric.FindAllStringSubmatch(out, -1) {
			if m[2] != name || m[3] != v.Name {
				continue
			}
			if all[name][m[1]], err = strconv.ParseFloat(m[4], 64); err != nil {
				return nil, err
			}
		}
		if len(all[name]) != 3 {
			return nil, fmt.Errorf("%s says nothing of replica %s", at, name)
		}
	}
	return all, nil
}

// sameDigest asserts that all Pods see the same names and contents.
func sameDigest(t *testing.T, ns string, pods ...string) {
	t.Helper()
	first := mustInPod(t, ns, pods[0], "/workload", "digest", "/data")
	for _, p := range pods[1:] {
		if d := mustInPod(t, ns, p, "/workload", "digest", "/data"); d != first {
			t.Errorf("%s sees digest %s, %s sees %s", p, d, pods[0], first)
		}
	}
}
