package kube_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tak-os.org/tak-replicated/kube"
)

// TestWatchEndsWithoutServer tells watches to end while the server refuses them and their next try is seconds away.
func TestWatchEndsWithoutServer(t *testing.T) {
	asked := make(chan string, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(s.Close)
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"`+s.URL+`"}}],"users":[{"name":"u","user":{}}]}`), 0o600))
	k, err := kube.Connect(kube.Options{Kubeconfig: config, UserAgent: "test"})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watches := []interface{ Run(context.Context) error }{
		k.WatchVolumes(0, func(string) {}), k.WatchClaims(func(string) {}), k.WatchNodes(func(string) {}), k.WatchPVs("d", func(kube.PV) {}),
	}
	ended := make(chan error, len(watches))
	for _, w := range watches {
		go func() { ended <- w.Run(ctx) }()
	}
	// The wait after the fourth refusal is 4 s or more.
	refused := map[string]int{}
	for waiting := 0; waiting < len(watches); {
		select {
		case path := <-asked:
			if refused[path]++; refused[path] == 4 {
				waiting++
			}
		case <-time.After(patience):
			t.Fatalf("asked only for %v", refused)
		}
	}
	cancel()
	soon := time.After(2 * time.Second)
	for range watches {
		select {
		case err := <-ended:
			if err != context.Canceled {
				t.Errorf("a watch ended with %v", err)
			}
		case <-soon:
			t.Fatal("a watch goes on after it was told to end")
		}
	}
}
