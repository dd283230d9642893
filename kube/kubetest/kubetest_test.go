package kubetest

import (
	"io"
	"net/http"
	"testing"
)

// TestServerKeepsItsStateOverARestart also is the smallest use of the package.
func TestServerKeepsItsStateOverARestart(t *testing.T) {
	s := Start(t)
	c := s.Client()
	get := func(path string) int {
		resp, err := c.Get(s.URL + path)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	if code := get("/api/v1/namespaces/kube-system"); code != http.StatusOK {
		t.Errorf("the server answers %d", code)
	}
	s.StopAPI()
	if code := get("/api/v1/namespaces/kube-system"); code != 0 {
		t.Errorf("the stopped server answers %d", code)
	}
	if err := s.StartAPI(); err != nil {
		t.Fatalf("%v\n%s", err, s.logs())
	}
	if code := get("/api/v1/namespaces/kube-system"); code != http.StatusOK {
		t.Errorf("the restarted server answers %d", code)
	}
}
