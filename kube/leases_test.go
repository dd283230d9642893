package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tak-os.org/tak-replicated/kube"
)

// script is a connection to a server that answers as it is told to, one minute after the other.
type script struct {
	began   time.Time
	minutes []func(port int) (*http.Response, error)
	calls   int
}

func (s *script) RoundTrip(*http.Request) (*http.Response, error) {
	s.calls++
	n := int(time.Since(s.began) / time.Minute)
	return s.minutes[min(n, len(s.minutes)-1)](40000 + s.calls)
}

func answer(code int, body string) func(int) (*http.Response, error) {
	return func(int) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// TestLeaseTrouble has a lease that can't be asked for, for one reason after the other: each is told of once, and its end.
func TestLeaseTrouble(t *testing.T) {
	config := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(config, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"http://192.0.2.1"}}],"users":[{"name":"u","user":{}}]}`), 0o600))
	status := func(code int, reason string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, reason)
	}
	held := answer(200, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l","resourceVersion":"1"},
		"spec":{"holderIdentity":"another","renewTime":"2000-01-01T00:00:00.000000Z"}}`)
	synctest.Test(t, func(t *testing.T) {
		s := &script{began: time.Now(), minutes: []func(int) (*http.Response, error){
			held, answer(403, status(403, "Forbidden")),
			func(port int) (*http.Response, error) { // from another port each time
				return nil, &net.OpError{Op: "read", Source: &net.TCPAddr{Port: port}, Err: syscall.ECONNRESET}
			},
			held, answer(500, status(500, "InternalError")), held,
		}}
		k, err := kube.Connect(kube.Options{Kubeconfig: config, UserAgent: "test", Wrap: func(http.RoundTripper) http.RoundTripper { return s }})
		must(t, err)
		var told []string
		e := kube.Election{Lease: "l", Identity: "me", Duration: time.Hour, Renew: time.Minute, Retry: 2 * time.Second}
		e.Trouble = func(err error) {
			switch {
			case err == nil:
				told = append(told, "none")
			case kube.Forbidden(err):
				told = append(told, "forbidden")
			case kube.Uncertain(err):
				told = append(told, "no answer")
			default:
				told = append(told, err.Error())
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
		defer cancel()
		err = k.Lead(ctx, e, func(context.Context) error {
			t.Error("leads, and another holds the lease")
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if want := []string{"forbidden", "no answer", "none", "no answer", "none"}; !slices.Equal(told, want) {
			t.Errorf("told of %q", told)
		}
	})
}
