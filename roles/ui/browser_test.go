package ui

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/live"
	"tak-os.org/tak-replicated/roles/worker"
)

// screenshotsEnv names a folder in which the pictures are kept, for somebody to look at.
const screenshotsEnv = "TAK_SCREENSHOTS"

// browserWithin bounds one picture.
const browserWithin = 2 * time.Minute

// many are a thousand volumes, some of them in trouble.
func many() fake {
	now := time.Now()
	f := fake{answers: &live.Answers{Reports: []*worker.Report{{Role: "coordinator", Owner: &worker.OwnerReport{Session: 3}, Sessions: []worker.SessionReport{
		{ID: 3, Name: "node-with-a-long-name-7.example.internal", Opened: now.Add(-5 * time.Hour), Locks: 12},
		{ID: 4, Name: "node-2", Opened: now.Add(-time.Minute)},
	}}}}}
	for n := range 1000 {
		f.volumes = append(f.volumes, volume(n, func(v *api.ReplicatedVolume) {
			v.Name = fmt.Sprintf("pvc-3f0c%04d-91c2-4b7a-8a51-d6e0b1f2%04d", n, n)
			v.Spec.Claim = api.ClaimReference{Namespace: []string{"default", "shop", "monitoring-and-logging"}[n%3], Name: fmt.Sprintf("data-of-service-%d", n)}
			for i := range v.Spec.Replicas {
				v.Status.Replicas = append(v.Status.Replicas, api.ReplicaStatus{
					Index: int32(i + 1), Incarnation: 1, Node: v.Spec.Replicas[i].Node, Phase: api.ReplicaRunning, Role: api.RoleFollower, Term: 7, AppliedIndex: int64(123456 + n),
				})
			}
			v.Status.Replicas[0].Role = api.RoleCoordinator
			v.Spec.AccessMode, v.Spec.Runtime, v.Spec.Quota = api.ReadWriteMany, api.RuntimeShared, api.QuotaNone
			switch n % 100 {
			case 7:
				v.Status.Phase, v.Status.Ready, v.Status.ReadyReplicas = api.PhaseDegraded, "2/3", 2
				v.Status.Replicas[2].Phase, v.Status.Replicas[2].Role, v.Status.Replicas[2].Lag = api.ReplicaRebuilding, api.RoleLearner, 48211
				v.Status.Replicas[2].Reason, v.Status.Replicas[2].Message = "CatchingUp", "412 MiB of 1.2 GiB"
				v.Status.Conditions = []api.Condition{{Type: api.ConditionRedundant, Status: "False", Reason: "ReplicaBehind", Message: "replica 3 on node-2 has 48211 entries to go"}}
			case 42:
				v.Status.Phase, v.Status.Ready, v.Status.ReadyReplicas = api.PhaseUnavailable, "1/3", 1
				v.Status.Conditions = []api.Condition{{Type: api.ConditionAvailable, Status: "False", Reason: "NoQuorum", Message: "1 of 3 replicas answer: node-1 and node-2 are not ready since 2026-11-30 08:00"}}
			case 5:
				v.Status.Owner = &api.VolumeOwner{Node: "node-with-a-long-name-7.example.internal"}
			}
		}))
		if n < 60 {
			f.events = append(f.events, kube.SeenEvent{
				Kind: api.Kind, Namespace: "kube-system", Name: f.volumes[n].Name, Reason: "ReplicaBehind", Warning: n%4 == 0,
				Message: "replica 3 catches up from a checkpoint", Count: n, Last: now.Add(-time.Duration(n*n) * time.Second),
			})
		}
	}
	return f
}

// browser is Debian's; without it there is nothing to test.
func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser takes seconds")
	}
	path, err := exec.LookPath("chromium")
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal("chromium is not installed")
	default:
		t.Skip("chromium is not installed (apt-get install chromium)")
	}
	return path
}

// picture has a browser show a page.
func picture(t *testing.T, program, url, scheme string, width, height int) image.Image {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), browserWithin)
	defer cancel()
	dir := t.TempDir()
	file := filepath.Join(dir, "page.png")
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--blink-settings=preferredColorScheme="+map[string]string{"dark": "0", "light": "1"}[scheme],
		fmt.Sprintf("--window-size=%d,%d", width, height), "--screenshot="+file, url)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	// Its helpers end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); ctx.Err() != nil {
		t.Skipf("the browser has shown nothing within %s: this machine is too busy for it", browserWithin)
	} else if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if keep := os.Getenv(screenshotsEnv); keep != "" {
		if err := os.WriteFile(filepath.Join(keep, fmt.Sprintf("%s-%d.png", filepath.Base(t.Name()), width)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	img, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// brightness is the middle of a picture's pixels, 0 to 1, and how many differ from its corner.
func brightness(img image.Image) (mean float64, inked int) {
	b := img.Bounds()
	corner := img.At(b.Min.X, b.Min.Y)
	n := 0
	for y := b.Min.Y; y < b.Max.Y; y += 2 {
		for x := b.Min.X; x < b.Max.X; x += 2 {
			r, g, bl, _ := img.At(x, y).RGBA()
			mean += float64(r+g+bl) / (3 * 0xffff)
			if n++; img.At(x, y) != corner {
				inked++
			}
		}
	}
	return mean / float64(n), inked
}

// TestInBrowser looks at the page with a thousand volumes as a browser shows it, in a light and a dark scheme, on a desk and on
// a phone.
func TestInBrowser(t *testing.T) {
	program := browser(t)
	f := many()
	s := httptest.NewServer(Handler(f))
	defer s.Close()
	for _, c := range []struct {
		name, path, scheme string
		width              int
	}{
		{"list", "/", "light", 1280},
		{"list", "/", "dark", 500},
		{"volume", "/volumes/" + f.volumes[7].Name, "light", 500},
		{"volume", "/volumes/" + f.volumes[7].Name, "dark", 1280},
	} {
		t.Run(c.name+"-"+c.scheme, func(t *testing.T) {
			mean, ink := brightness(picture(t, program, s.URL+c.path, c.scheme, c.width, 1600))
			if (mean > 0.5) != (c.scheme == "light") {
				t.Errorf("%s is %.2f bright", c.scheme, mean)
			}
			if ink < 2000 {
				t.Errorf("nearly nothing is shown: %d pixels", ink)
			}
		})
	}
}
