package check

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tak-os.org/tak-replicated/roles/replicahost"
)

func TestJudgements(t *testing.T) {
	some := func(n int, d, last time.Duration) []time.Duration {
		var all []time.Duration
		for range n - 2 {
			all = append(all, d)
		}
		return append(all, last, last)
	}
	for _, c := range []struct {
		f     Finding
		state State
		says  string
	}{
		{kernelOf("6.9.0-1-amd64"), OK, "6.9.0"},
		{kernelOf("6.8.12"), OK, "6.8.12"},
		{kernelOf("5.11.22"), Fail, "5.11.22"},
		{kernelOf("4.19.0"), Fail, "4.19"},
		{kernelOf("next"), Warn, "next"},
		{resendOf("6.9.0-1-amd64"), OK, "by the kernel's version"},
		{resendOf("7.0"), OK, "by the kernel's version"},
		{resendOf("6.8.12"), Warn, "by the kernel's version"},
		{resendOf("5.12.0"), Warn, "by the kernel's version"},
		{judgePorts(nil), OK, "free: 9811 "},
		{judgePorts([]string{"9812", "9813"}), Warn, "taken: 9812 9813"},
		{judgeDNS([]string{"10.96.0.1"}, nil), OK, "is [10.96.0.1]"},
		{judgeDNS(nil, &net.DNSError{Err: "no such host", IsNotFound: true}), OK, "a server answers"},
		{judgeDNS(nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true}), Warn, "i/o timeout"},
		{judgeClock(false, 20*time.Millisecond), OK, "20ms"},
		{judgeClock(false, 2*time.Second), Warn, "2s"},
		{judgeClock(true, 0), Warn, "does not know"},
		{judgeDisk(some(100, time.Millisecond, time.Millisecond)), OK, "median 1ms"},
		{judgeDisk(some(100, time.Millisecond, 60*time.Millisecond)), Warn, "percentile 60ms"},
		{judgeDisk(some(100, time.Millisecond, 3*time.Second)), Fail, "percentile 3s"},
		{judgeDisk([]time.Duration{time.Minute}), Fail, "1 syncs"},
		{judgeSpace(50<<20, 100<<20), OK, "50 of 100 MiB"},
		{judgeSpace(9<<20, 100<<20), Warn, "9 of 100 MiB"},
		{judgeSpace(0, 0), OK, "0 of 0"},
	} {
		if c.f.State != c.state || !strings.Contains(c.f.Says, c.says) || (c.f.State != OK) != (c.f.Do != "") {
			t.Errorf("%+v, want %s and %q", c.f, c.state, c.says)
		}
	}
}

func kernelOf(release string) Finding { return judgeKernel(release)[0] }
func resendOf(release string) Finding { return judgeKernel(release)[1] }

// TestPlainCheck: without a word about them, ports and DNS are looked at, and nothing of
// that fails on a machine outside a cluster.
func TestPlainCheck(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	all := c.Look(t.Context())
	for _, what := range []string{"ports", "DNS", "RESEND"} {
		i := slices.IndexFunc(all, func(f Finding) bool { return f.What == what })
		if i < 0 || all[i].State == Fail {
			t.Errorf("%s: finding %d of %+v", what, i, all)
		}
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, mine, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if got := taken(t.Context(), []string{mine, "0"}); !slices.Equal(got, []string{mine}) {
		t.Errorf("%s is taken, got %v", mine, got)
	}
}

// TestNodePorts: they are those of the Pods that every node has, and no others.
func TestNodePorts(t *testing.T) {
	want := map[string]bool{strconv.Itoa(replicahost.DefaultPortFirst): true}
	for _, file := range []string{"base/node", "base/mount-owner", "base/local", "base/per-node", "components/registrar/node"} {
		text, err := os.ReadFile("../../../manifests/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`containerPort: (\d+)`).FindAllStringSubmatch(string(text), -1) {
			want[m[1]] = true
		}
	}
	for _, p := range nodePorts {
		if !want[p] {
			t.Errorf("port %s is in no manifest", p)
		}
		delete(want, p)
	}
	if len(want) != 0 {
		t.Errorf("not looked at: %v", want)
	}
}

// TestLook looks at this machine, of which it knows a port that is taken, a name
// that has no address, and a folder that is not there.
func TestLook(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := Config{Dir: filepath.Join(dir, "not/yet"), KubeletDir: filepath.Join(dir, "kubelet"), Ports: []string{taken, "0"}, Names: []string{"localhost", "none.invalid"}}
	all := c.Look(t.Context())
	found := map[string]Finding{}
	for _, f := range all {
		found[f.What] = f
	}
	for what, want := range map[string]State{
		"port " + taken: Fail, "port 0": OK, "name localhost": OK, "name none.invalid": Fail, "mount propagation": Fail, "space": found["space"].State,
	} {
		if f := found[what]; f.State != want || f.State == "" {
			t.Errorf("%s: %+v", what, f)
		}
	}
	if f := found["disk"]; !strings.Contains(f.Says, " syncs: median ") {
		t.Errorf("disk: %+v", f)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, error %v", left, err)
	}
	if err := verdict(all); err == nil || !strings.Contains(err.Error(), "checks failed") {
		t.Errorf("verdict %v", err)
	}
	if err := verdict([]Finding{{State: OK}, {State: Warn}}); err != nil {
		t.Errorf("verdict %v", err)
	}

	var text, js bytes.Buffer
	if err := print(&text, all); err != nil || !strings.Contains(text.String(), "→ find who listens there") {
		t.Errorf("%s, error %v", text.String(), err)
	}
	var again []Finding
	if err := printJSON(&js, all); err != nil || json.Unmarshal(js.Bytes(), &again) != nil || len(again) != len(all) || again[0] != all[0] {
		t.Errorf("%s, error %v", js.String(), err)
	}
}

func TestFoldersThatCanNotBeMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f := disk(t.Context(), file); f.State != Fail || !strings.Contains(f.Says, "is not a folder") {
		t.Errorf("%+v", f)
	}
	if f := space(file); f.State != Fail {
		t.Errorf("%+v", f)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if f := disk(ended, t.TempDir()); f.State != Fail {
		t.Errorf("%+v", f)
	}
}
