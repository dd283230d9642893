package ui

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/live"
	"tak-os.org/tak-replicated/roles/worker"
)

type fake struct {
	volumes []*api.ReplicatedVolume
	events  []kube.SeenEvent
	about   []kube.SeenEvent
	answers *live.Answers // nil: nobody can be asked
	err     error
}

func (f fake) Volumes(context.Context) ([]*api.ReplicatedVolume, error) { return f.volumes, f.err }
func (f fake) Events(context.Context) ([]kube.SeenEvent, error)         { return f.events, nil }
func (f fake) EventsAbout(context.Context, *api.ReplicatedVolume) ([]kube.SeenEvent, error) {
	return f.about, errors.New("some could not be had")
}

func (f fake) Workers(context.Context, *api.ReplicatedVolume) (*live.Answers, error) {
	if f.answers == nil {
		return nil, errors.New("there is no secret <x>")
	}
	return f.answers, nil
}

// volume is whole, unless changed.
func volume(n int, change func(*api.ReplicatedVolume)) *api.ReplicatedVolume {
	v := &api.ReplicatedVolume{}
	v.Name = fmt.Sprintf("pvc-%04d", n)
	v.Spec.Claim = api.ClaimReference{Namespace: "default", Name: fmt.Sprintf("claim-%d", n)}
	v.Spec.ReplicaCount, v.Status.Phase, v.Status.Ready, v.Status.ReadyReplicas = 3, api.PhaseReady, "3/3", 3
	for i := range int32(3) {
		v.Spec.Replicas = append(v.Spec.Replicas, api.ReplicaSpec{Index: i + 1, Node: fmt.Sprintf("node-%d", i), Incarnation: 1})
	}
	if change != nil {
		change(v)
	}
	return v
}

func get(t *testing.T, s Source, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost:8080"+path, nil))
	if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
		t.Errorf("%s: policy %q", path, csp)
	}
	wellFormed(t, path, w.Body.String())
	return w.Code, w.Body.String()
}

// wellFormed asks that every element is closed where it has to be, and nothing is
// loaded from elsewhere.
func wellFormed(t *testing.T, path, body string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(body))
	d.Strict, d.AutoClose, d.Entity = true, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Errorf("%s: %v", path, err)
			break
		}
	}
	for _, from := range []string{"<script", "src=", "http://", "https://", "@import", "url("} {
		if strings.Contains(body, from) {
			t.Errorf("%s has %q", path, from)
		}
	}
}

// TestThousandVolumes lists the worst of many first, a page at a time.
func TestThousandVolumes(t *testing.T) {
	var f fake
	for n := range 1000 {
		f.volumes = append(f.volumes, volume(n, nil))
	}
	f.volumes[700] = volume(700, func(v *api.ReplicatedVolume) {
		v.Status.Conditions = []api.Condition{{Type: api.ConditionAvailable, Status: "False", Reason: "NoQuorum", Message: `1 of 3 <answers>`}}
	})
	f.volumes[800] = volume(800, func(v *api.ReplicatedVolume) { v.Status.Ready, v.Status.ReadyReplicas = "2/3", 2 })
	began := time.Now()
	code, body := get(t, f, "/")
	if took := time.Since(began); code != 200 || took > 5*time.Second {
		t.Errorf("%d after %v", code, took)
	}
	first, second, third := strings.Index(body, "/volumes/pvc-0700"), strings.Index(body, "/volumes/pvc-0800"), strings.Index(body, "/volumes/pvc-0000")
	if first < 0 || first > second || second > third || strings.Count(body, "/volumes/") != perPage {
		t.Errorf("order %d %d %d, %d volumes", first, second, third, strings.Count(body, "/volumes/"))
	}
	if !strings.Contains(body, "NoQuorum: 1 of 3 &lt;answers&gt;") {
		t.Error("the reason is missing or not escaped")
	}
	if _, body = get(t, f, "/?page=5"); strings.Count(body, "/volumes/") != perPage || strings.Contains(body, `rel="next"`) || !strings.Contains(body, `rel="prev"`) {
		t.Error("the last page is not the last")
	}
	if _, body = get(t, f, "/?health=degraded"); strings.Count(body, "/volumes/") != 1 {
		t.Error("the degraded ones are not listed alone")
	}
	if _, body = get(t, f, "/?q=claim-42&page=x"); strings.Count(body, "/volumes/") != 11 {
		t.Error("search finds other volumes")
	}
	if _, body = get(t, f, `/?q="><b>`); !strings.Contains(body, "No volume matches") {
		t.Error("a search for nothing finds something")
	}
}

func TestVolumePage(t *testing.T) {
	v := volume(1, func(v *api.ReplicatedVolume) {
		v.Status.Owner = &api.VolumeOwner{Node: "node-9"}
		v.Status.Replicas = []api.ReplicaStatus{{Index: 1, Incarnation: 1, Node: "node-0", Phase: api.ReplicaRebuilding, Role: api.RoleLearner, Lag: 4321, Reason: "CatchingUp"}}
		v.Status.Conditions = []api.Condition{{Type: api.ConditionRedundant, Status: "False", Reason: "ReplicaBehind", Message: "replica 1"}}
	})
	f := fake{volumes: []*api.ReplicatedVolume{v}, about: []kube.SeenEvent{
		{Kind: api.Kind, Name: v.Name, Reason: "PlacedAgain", Warning: true, Last: time.Now()},
		{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "claim-1", Reason: "MountReplaced", Last: time.Now()},
	}, events: []kube.SeenEvent{{Kind: api.Kind, Name: "pvc-other", Reason: "OfAnother", Last: time.Now()}}}
	code, body := get(t, f, "/volumes/pvc-0001")
	for _, want := range []string{"node-9", "Rebuilding", "4321", "CatchingUp", "its host has said nothing", "ReplicaBehind", "waited for", "PlacedAgain", "MountReplaced"} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d, the page lacks %q", code, want)
		}
	}
	if strings.Contains(body, "OfAnother") {
		t.Error("Events of another volume are shown")
	}
	if code, _ := get(t, f, "/volumes/none"); code != 404 {
		t.Errorf("a volume that is not there: %d", code)
	}
	if code, body := get(t, fake{err: errors.New("API server is away")}, "/"); code != 503 || !strings.Contains(body, "API server is away") {
		t.Errorf("without an answer: %d", code)
	}
}

// TestSessionsOnThePage shows who has a volume open, or why nobody knows.
func TestSessionsOnThePage(t *testing.T) {
	f := fake{volumes: []*api.ReplicatedVolume{volume(1, nil)}}
	coordinator := &worker.Report{Replica: "r-1", Role: "coordinator", Term: 3}
	page := func() string {
		t.Helper()
		code, body := get(t, f, "/volumes/pvc-0001")
		if code != 200 {
			t.Errorf("%d", code)
		}
		_, body, _ = strings.Cut(body, "Open on")
		body, _, _ = strings.Cut(body, "Conditions")
		return body
	}
	expect := func(texts ...string) {
		t.Helper()
		body := page()
		for _, text := range texts {
			if !strings.Contains(body, text) {
				t.Errorf("no %q in %s", text, body)
			}
		}
	}
	expect("Not known: there is no secret &lt;x&gt;.")
	f.answers = &live.Answers{Reports: []*worker.Report{{Replica: "r-2", Role: "follower", Sessions: []worker.SessionReport{{Name: "stale"}}}}}
	expect("no worker that answers coordinates")
	f.answers.Reports = append(f.answers.Reports, coordinator)
	expect("Nobody has it open")
	coordinator.Owner = &worker.OwnerReport{Session: 7}
	coordinator.Sessions = []worker.SessionReport{{ID: 7, Name: "node-7", Locks: 2, Opened: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, {ID: 8, Name: "node-8"}}
	expect(`node-7</th><td>2026-01-02 03:04:05 UTC</td><td class="n">2</td><td>yes`, `node-8</th><td>–</td><td class="n">0</td><td>no`)
	for range sessionsShown {
		coordinator.Sessions = append(coordinator.Sessions, worker.SessionReport{Name: "n"})
	}
	expect("And 2 more")
}

// TestAskedAtOnce: whoever looks can't have all workers of a cluster asked.
func TestAskedAtOnce(t *testing.T) {
	c := NewCluster(nil, "cluster.local")
	for range askedAtOnce {
		c.asking <- struct{}{}
	}
	if _, err := c.Workers(t.Context(), volume(1, nil)); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("one more: %v", err)
	}
}

// TestGuard refuses whatever comes under another name, and every change.
func TestGuard(t *testing.T) {
	for _, host := range []string{"evil.example", "10.0.0.1:80", ""} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if Handler(fake{}).ServeHTTP(w, r); w.Code != http.StatusForbidden {
			t.Errorf("host %q: %d", host, w.Code)
		}
	}
	w := httptest.NewRecorder()
	if Handler(fake{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://127.0.0.1/", nil)); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	for addr, ok := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true, "localhost:0": true, "0.0.0.0:80": false, ":80": false, "10.1.1.1:80": false, "x": false} {
		if err := Check("ui-addr", addr); (err == nil) != ok || err != nil && !boot.IsUsage(err) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
