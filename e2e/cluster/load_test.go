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

// mostGrant is how many times longer than on a machine that does nothing else a pause may be, whatever the machine did: it bounds what is granted for
// standstills and a crowd.
const mostGrant = 2

// pauseGranted is how long a pause from begin to end may be that may take pause on a machine that does nothing else, and says why.
func pauseGranted(pause time.Duration, begin, end time.Time) (most time.Duration, why string) {
	stood, crowd := machine.between(begin, end)
	most = min(time.Duration(float64(pause)*crowd)+stood, mostGrant*pause)
	return most, fmt.Sprintf("granted %.1f s for %.1f s: the machine stood still for %.1f s, crowd %.1f", most.Seconds(), pause.Seconds(), stood.Seconds(), crowd)
}

// wantSmooth asserts that a workload went on without an error and without a longer pause than it may make on a machine that does nothing else; what
// the machine costs it comes on top, within bounds.
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
	most, why := pauseGranted(pause, begin, end)
	t.Logf("%s: %d rounds in %.0f s, longest pause %.1f s (from %s); %s",
		pod, during, end.Sub(begin).Seconds(), longest.Seconds(), from.UTC().Format("15:04:05.0"), why)
	if longest > most {
		t.Errorf("%s paused for %s, longer than %s", pod, longest, most)
	}
}

// wantResumed asserts that a workload that was cut off went on soon after, and that none of its rounds from begin on failed; but for one that says that
// unsynced work is lost, if that may be.
func wantResumed(t *testing.T, pod string, all []result, begin, healed time.Time, within time.Duration, mayLose bool) {
	t.Helper()
	var first time.Time
	for _, r := range all {
		if mayLose && strings.HasPrefix(r.failed, "sync ") && strings.Contains(r.failed, "input/output error") && r.at.After(begin) {
			t.Logf("%s, round %d: %s", pod, r.n, r.failed)
			mayLose = false
			continue
		}
		if r.failed != "" && r.at.After(begin) {
			t.Errorf("%s, round %d: %s", pod, r.n, r.failed)
		}
		if r.failed == "" && r.at.After(healed) && first.IsZero() {
			first = r.at
		}
	}
	took := first.Sub(healed)
	most, why := pauseGranted(within, healed, first)
	t.Logf("%s went on after %.1f s; %s", pod, took.Seconds(), why)
	if first.IsZero() || took > most {
		t.Errorf("%s went on after %s, later than after %s", pod, took, most)
	}
}

// wroteSince says which workload had no successful round at last, or none since a time.
func wroteSince(ns string, since time.Time, pods ...string) error {
	for _, p := range pods {
		all, err := results(ns, p)
		if err != nil {
			return err
		}
		if last := all[len(all)-1]; last.failed != "" || last.at.Before(since) {
			return fmt.Errorf("%s: %+v", p, last)
		}
	}
	return nil
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
				want = max(want, s.commit)
			}
		}
		for name, s := range all {
			if !s.inSync(want) {
				return fmt.Errorf("%s: %+v, index %.0f is wanted", name, s, want)
			}
		}
		return nil
	})
}

// standing is what a worker says of its replica.
type standing struct {
	volume          string
	applied, commit float64
	led             bool // it knows a coordinator
	said            int  // how many of these it said
}

func (s standing) inSync(index float64) bool { return s.led && index > 0 && s.applied >= index }

var standingMetric = regexp.MustCompile(`(?m)^tak_replicated_replica_(applied_index|commit_index|coordinator_known)\{replica="([^"]+)",volume="([^"]+)"\} (\S+)$`)

// hostStandings are those of all replicas that a process serves, by replica.
func hostStandings(at string) (map[string]standing, error) {
	out, err := try("get", "--raw", "/api/v1/namespaces/kube-system/pods/"+at+"/proxy/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]standing{}
	for _, m := range standingMetric.FindAllStringSubmatch(out, -1) {
		value, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			return nil, err
		}
		s := all[m[2]]
		s.volume, s.said = m[3], s.said+1
		switch m[1] {
		case "applied_index":
			s.applied = value
		case "commit_index":
			s.commit = value
		default:
			s.led = value == 1
		}
		all[m[2]] = s
	}
	return all, nil
}

// standings are what the workers of a volume's replicas themselves say, all of them, by replica.
func standings(v *api.ReplicatedVolume) (map[string]standing, error) {
	hosts, err := readyPods("kube-system", "csi.replicated.tak-os.org/component="+api.ComponentNode)
	if err != nil {
		return nil, err
	}
	pods := map[string]string{} // of replica hosts, by node
	for _, p := range hosts {
		pods[p.Spec.NodeName] = p.Name
	}
	all := map[string]standing{}
	for _, r := range v.Spec.Replicas {
		name := api.ReplicaName(v.Name, r.Index)
		at := pods[r.Node] + ":9813"
		if v.EffectiveRuntime() == api.RuntimePod {
			at = name + ":9814"
		}
		served, err := hostStandings(at)
		if err != nil {
			return nil, err
		}
		s := served[name]
		if s.volume != v.Name || s.said != 3 {
			return nil, fmt.Errorf("%s says %+v of replica %s", at, s, name)
		}
		all[name] = s
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
