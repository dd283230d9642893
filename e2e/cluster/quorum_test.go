//go:build e2e

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tak-os.org/tak-replicated/kube/api"
)

const (
	glanceEvery  = 300 * time.Millisecond
	glanceWithin = time.Second
)

// glance is what a volume's members said of themselves at one time.
type glance struct {
	at       time.Time
	asked    int  // replica hosts that had an address
	answered int  // members that answered
	serving  int  // of these have what they need to be part of a quorum
	leads    bool // one is the coordinator: it has heard from a quorum within an election's time
}

func (g glance) quorum(members int) bool { return g.leads || g.serving > members/2 }

// none tells that there was no quorum even if all that did not answer served.
func (g glance) none(members int) bool { return members-(g.answered-g.serving) <= members/2 }

// lookout asks the members of a volume, some times a second, whether a quorum serves. It asks through one process, since a kubectl each would
// cost more than what it looks at.
type lookout struct {
	volume  string
	members int
	client  *http.Client
	end     context.CancelFunc
	mu      sync.Mutex
	seen    []glance
}

// watchQuorum looks out until the test ends.
func watchQuorum(t *testing.T, volume string, members int) *lookout {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	socket := filepath.Join(t.TempDir(), "api")
	cmd := setup.kubectl(ctx, "proxy", "--unix-socket="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	l := &lookout{volume: volume, members: members, client: &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 2 * members}, Timeout: glanceWithin}}
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		all.Wait()
		l.client.CloseIdleConnections()
		_ = cmd.Wait() // killed
	})
	eventually(t, settle, "members can be asked", func() error { _, err := l.hosts(); return err })
	all.Go(func() { l.watch(ctx) })
	return l
}

func (l *lookout) watch(ctx context.Context) {
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		g := l.look()
		l.mu.Lock()
		l.seen = append(l.seen, g)
		l.mu.Unlock()
	}
}

func (l *lookout) ask(path string) (string, error) {
	answer, err := l.client.Get("http://localhost/api/v1/namespaces/kube-system/pods" + path) // the proxy serves this host only
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, b)
	}
	return string(b), err
}

// hosts are the Pods of replica hosts that have an address.
func (l *lookout) hosts() (names []string, err error) {
	out, err := l.ask("?labelSelector=csi.replicated.tak-os.org/component=" + api.ComponentNode)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if p.Status.PodIP != "" {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

// look asks all at the same time.
func (l *lookout) look() glance {
	names, err := l.hosts()
	if err != nil {
		return glance{at: time.Now()}
	}
	g := glance{asked: len(names)}
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, name := range names {
		all.Go(func() {
			out, err := l.ask("/" + name + ":9813/proxy/metrics")
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if _, ok := gauge(out, "coordinator", l.volume); ok {
				g.answered++
			}
			if v, _ := gauge(out, "serving", l.volume); v == 1 {
				g.serving++
			}
			if v, _ := gauge(out, "coordinator", l.volume); v == 1 {
				g.leads = true
			}
		})
	}
	all.Wait()
	g.at = time.Now()
	return g
}

// gauge is what metrics say of a volume's replica, if they do.
func gauge(metrics, name, volume string) (float64, bool) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "tak_replicated_replica_"+name+"{") && strings.Contains(line, `volume="`+volume+`"`) {
			words := strings.Fields(line)
			v, err := strconv.ParseFloat(words[len(words)-1], 64)
			return v, err == nil
		}
	}
	return 0, false
}

// wantQuorum asserts that there was a quorum at every second of a time: a round of a workload was synced in it, a member led, or enough of them served.
// Where those that did not answer may have served, a second tells nothing; more than every tenth may not be of that kind.
func (l *lookout) wantQuorum(t *testing.T, begin, end time.Time, rounds ...[]result) {
	t.Helper()
	seconds := int(end.Sub(begin) / time.Second)
	synced := syncedIn(begin, rounds)
	confirmed, led, followed, mute := 0, 0, 0, 0
	for s := range seconds {
		in := l.between(begin.Add(time.Duration(s)*time.Second), begin.Add(time.Duration(s+1)*time.Second))
		if synced[s] {
			confirmed++
		}
		switch {
		case slices.ContainsFunc(in, func(g glance) bool { return g.leads }):
			led++
		case slices.ContainsFunc(in, func(g glance) bool { return g.quorum(l.members) }):
			followed++
		case synced[s]:
		case slices.ContainsFunc(in, func(g glance) bool { return g.none(l.members) }):
			t.Errorf("no quorum in second %d from %s: %+v", s, begin.UTC().Format("15:04:05.0"), in)
		default:
			mute++
		}
	}
	t.Logf("of %d seconds: a round synced in %d, a coordinator in %d, a quorum without one in %d, nothing known in %d", seconds, confirmed, led, followed, mute)
	if mute*10 > seconds || led == 0 {
		t.Errorf("too little was seen: nothing known of %d of %d seconds", mute, seconds)
	}
}

// between is what was seen from one time to another.
func (l *lookout) between(from, to time.Time) (in []glance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.seen {
		if !g.at.Before(from) && g.at.Before(to) {
			in = append(in, g)
		}
	}
	return in
}

// syncedIn are the seconds from begin in which a round was confirmed.
func syncedIn(begin time.Time, rounds [][]result) map[int]bool {
	in := map[int]bool{}
	for _, all := range rounds {
		for _, r := range all {
			if r.failed == "" && !r.at.Before(begin) {
				in[int(r.at.Sub(begin)/time.Second)] = true
			}
		}
	}
	return in
}
