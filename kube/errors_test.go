package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// TestNotFoundIsTheServersWord has something between here and the API server answer 404, as a proxy does that knows no way: that says nothing of
// what is there, and nothing is given up for it.
func TestNotFoundIsTheServersWord(t *testing.T) {
	for what, c := range map[string]struct {
		kind, body string
		want       bool
	}{
		"the server": {"application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"persistentvolumeclaims \"a\" not found","reason":"NotFound","details":{"name":"a","kind":"persistentvolumeclaims"},"code":404}`, true},
		"a proxy":    {"text/html", "<html><body>404 Not Found</body></html>", false},
		"no body":    {"text/plain", "", false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(c.body))
		}))
		k, err := newClient(&rest.Config{Host: s.URL}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, claim := k.Claim(t.Context(), "default", "a")
		_, volume := k.Volume(t.Context(), "a")
		for _, err := range []error{claim, volume} {
			if NotFound(err) != c.want || NotServed(err) == c.want || Uncertain(err) == c.want {
				t.Errorf("%s answers %v: not found %v, uncertain %v", what, err, NotFound(err), Uncertain(err))
			}
		}
		s.Close()
	}
}
