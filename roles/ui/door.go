package ui

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/roles/boot"
)

// Reviewer says whose token it is and whether that user may read volumes. An
// error means that it can't say.
type Reviewer interface {
	Review(ctx context.Context, token string) (kube.Verdict, error)
}

var _ Reviewer = (*kube.Client)(nil)

// Bounds of the door.
const (
	allowedFor  = 30 * time.Second // a verdict is not asked for again
	refusedFor  = 5 * time.Second
	verdictsMax = 256
	reviewsMax  = 4 // asked for at once; more wait as long as a page may
)

// door lets in whom the cluster lets read volumes.
type door struct {
	reviewer Reviewer
	now      func() time.Time
	reviews  chan struct{}
	mu       struct {
		sync.Mutex
		known map[[sha256.Size]byte]known // by the token's digest: tokens are not kept
	}
}

type known struct {
	kube.Verdict
	until time.Time
}

func newDoor(r Reviewer) *door {
	d := &door{reviewer: r, now: time.Now, reviews: make(chan struct{}, reviewsMax)}
	d.mu.known = map[[sha256.Size]byte]known{}
	return d
}

// guard asks every caller for a token before next sees the request.
func (d *door) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := tokenOf(r)
		if token == "" {
			challenge(w, "This page needs a bearer token of the cluster; in a browser it is the password, of any user name.")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		v, err := d.verdict(ctx, token)
		switch {
		case err != nil:
			http.Error(w, "Nobody can say now who may see this page: "+boot.OneLine(err), http.StatusServiceUnavailable)
		case v.User == "":
			challenge(w, "The cluster does not know this token, or it has expired.")
		case !v.Allowed:
			http.Error(w, fmt.Sprintf("%s may not get and list ReplicatedVolumes in the driver's namespace.", v.User), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func challenge(w http.ResponseWriter, why string) {
	w.Header().Add("WWW-Authenticate", `Bearer realm="tak-replicated"`)
	w.Header().Add("WWW-Authenticate", `Basic realm="tak-replicated: any user name, and a token of the cluster as password", charset="UTF-8"`)
	http.Error(w, why, http.StatusUnauthorized)
}

// tokenOf is the bearer token, or the password that a browser has asked for.
func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return strings.TrimSpace(password)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// verdict asks the reviewer, or remembers what it said a moment ago.
func (d *door) verdict(ctx context.Context, token string) (kube.Verdict, error) {
	key := sha256.Sum256([]byte(token))
	if v, ok := d.remembered(key); ok {
		return v, nil
	}
	select {
	case d.reviews <- struct{}{}:
		defer func() { <-d.reviews }()
	case <-ctx.Done():
		return kube.Verdict{}, ctx.Err()
	}
	v, err := d.reviewer.Review(ctx, token)
	if err == nil {
		d.remember(key, v)
	}
	return v, err
}

func (d *door) remembered(key [sha256.Size]byte) (kube.Verdict, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, ok := d.mu.known[key]
	return k.Verdict, ok && d.now().Before(k.until)
}

func (d *door) remember(key [sha256.Size]byte, v kube.Verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.known) >= verdictsMax {
		clear(d.mu.known) // whoever is still there is asked about once more
	}
	term := refusedFor
	if v.Allowed {
		term = allowedFor
	}
	d.mu.known[key] = known{v, d.now().Add(term)}
}
