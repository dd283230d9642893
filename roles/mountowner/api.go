package mountowner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/roles/boot"
)

// The API, version 1: HTTP with JSON over a Unix socket.
//
//	POST   /v1/mounts   a Spec; answers when the mount serves. Repeating it is fine.
//	GET    /v1/mounts   a list of Status
//	DELETE /v1/mounts?mountpoint=PATH[&detach=true]
//	                    answers when it is unmounted; 409 with the holders when it
//	                    is busy, unless detach
//	                    (POST and DELETE: not from an owner that serves a kubelet)
//	GET    /v1/health   a Health
//	GET    /v1/metrics  the serving process's metrics, for its keeper to show
//
// An answer other than 200 carries a Problem.
const (
	apiVersion  = 1
	pathMounts  = "/v1/mounts"
	pathHealth  = "/v1/health"
	pathMetrics = "/v1/metrics"
)

// Problem is the body of an answer that is not 200.
type Problem struct {
	Error   string   `json:"error"`
	Holders []Holder `json:"holders,omitempty"` // who keeps the mount busy
	Owner   string   `json:"owner,omitempty"`   // the node that owns the volume
}

// Health tells of the serving process.
type Health struct {
	Version  int    `json:"version"` // of the API
	PID      int    `json:"pid"`     // of the serving process
	Keeper   int    `json:"keeper"`  // of the process that holds the descriptors, 0 for none
	Instance string `json:"instance,omitempty"`
	Mounts   int    `json:"mounts"`
}

// BusyError says that a mount has users.
type BusyError struct {
	Mountpoint string
	Holders    []Holder
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s is busy: %v", e.Mountpoint, e.Holders)
}

// ErrNotMounted says that nothing is mounted there by this owner.
var ErrNotMounted = errors.New("not mounted by this owner")

// ErrConflict says that something else is asked for than what is mounted.
var ErrConflict = errors.New("another mount is there")

func (o *Owner) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathMounts, func(w http.ResponseWriter, r *http.Request) {
		if !o.anywhere(w) {
			return
		}
		body, ok := readBody(w, r, specBytesMost)
		if !ok {
			return
		}
		spec, err := parseSpec(body)
		if err != nil {
			answer(w, nil, boot.Usagef("%w", err))
			return
		}
		st, err := o.Mount(r.Context(), spec)
		answer(w, st, err)
	})
	mux.HandleFunc("GET "+pathMounts, func(w http.ResponseWriter, _ *http.Request) { answer(w, o.Mounts(), nil) })
	mux.HandleFunc("DELETE "+pathMounts, func(w http.ResponseWriter, r *http.Request) {
		if !o.anywhere(w) {
			return
		}
		q := r.URL.Query()
		err := o.Unmount(r.Context(), q.Get("mountpoint"), q.Get("detach") == "true")
		answer(w, struct{}{}, err)
	})
	mux.HandleFunc("GET "+pathHealth, func(w http.ResponseWriter, _ *http.Request) { answer(w, o.Health(), nil) })
	if o.metrics != nil {
		mux.Handle("GET "+pathMetrics, o.metrics)
	}
	o.handleStaging(mux)
	return o.onceResumed(mux)
}

// anywhere reports whether this owner mounts where it is told; false when it has
// answered already. One that serves a kubelet does not: its callers have no rights,
// and get nothing but that kubelet's paths.
func (o *Owner) anywhere(w http.ResponseWriter) bool {
	if o.places.Kubelet == "" {
		return true
	}
	answer(w, nil, boot.Usagef("this owner mounts below %s only: stage and publish", o.places.Kubelet))
	return false
}

// onceResumed has every request but those for health and metrics wait until this process knows
// the mounts that an earlier one has left: to whoever does not know them they look
// dead.
func (o *Owner) onceResumed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != pathHealth && r.URL.Path != pathMetrics {
			select {
			case <-o.resumed:
			case <-r.Context().Done():
				answer(w, nil, context.Cause(r.Context()))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// answer writes a result or a problem.
func answer(w http.ResponseWriter, result any, err error) {
	code := http.StatusOK
	if err != nil {
		code = statusOf(err)
		p := Problem{Error: boot.OneLine(err)}
		var busy *BusyError
		if errors.As(err, &busy) {
			p.Holders = busy.Holders
		}
		if owned := (*client.OwnedError)(nil); errors.As(err, &owned) {
			p.Owner = owned.Owner
		}
		result = p
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(result) // a caller that has gone needs no answer
}

func statusOf(err error) int {
	var busy *BusyError
	var owned *client.OwnedError
	switch {
	case errors.As(err, &busy), errors.Is(err, ErrConflict):
		return http.StatusConflict
	case errors.As(err, &owned):
		return http.StatusLocked
	case errors.Is(err, ErrNotStaged):
		return http.StatusFailedDependency
	case errors.Is(err, ErrNotMounted):
		return http.StatusNotFound
	case boot.IsUsage(err):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// Client calls an owner's API. Safe for concurrent use.
type Client struct{ http *http.Client }

// NewClient returns a client of the owner behind the socket.
func NewClient(socket string) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialOwner(ctx, socket)
		},
		DisableKeepAlives: true,
	}}}
}

// Mount mounts, and returns when the mount serves.
func (c *Client) Mount(ctx context.Context, s Spec) (*Status, error) {
	var st Status
	return &st, c.call(ctx, http.MethodPost, pathMounts, s, &st)
}

// Unmount unmounts. The error is a *BusyError when there are users and detach
// is not set.
func (c *Client) Unmount(ctx context.Context, mountpoint string, detach bool) error {
	q := url.Values{"mountpoint": {mountpoint}}
	if detach {
		q.Set("detach", "true")
	}
	err := c.call(ctx, http.MethodDelete, pathMounts+"?"+q.Encode(), nil, nil)
	var busy *BusyError
	if errors.As(err, &busy) {
		busy.Mountpoint = mountpoint
	}
	return err
}

// Mounts lists the mounts.
func (c *Client) Mounts(ctx context.Context) ([]Status, error) {
	var list []Status
	return list, c.call(ctx, http.MethodGet, pathMounts, nil, &list)
}

// Health asks for the owner's health.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	var h Health
	return &h, c.call(ctx, http.MethodGet, pathHealth, nil, &h)
}

// answerBytesMost bounds what a client reads of an answer.
const answerBytesMost = 4 << 20

func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://owner"+path, &b)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("call mount owner: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMost))
	if err != nil {
		return fmt.Errorf("call mount owner: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return problem(resp.StatusCode, text)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(text, result)
}

// problem makes an error of an answer that is not 200.
func problem(code int, text []byte) error {
	var p Problem
	if json.Unmarshal(text, &p) != nil || p.Error == "" {
		return fmt.Errorf("mount owner answered %d", code)
	}
	switch {
	case len(p.Holders) > 0:
		return &BusyError{Holders: p.Holders}
	case code == http.StatusLocked:
		return &client.OwnedError{Owner: p.Owner}
	case code == http.StatusFailedDependency:
		return fmt.Errorf("%w: %s", ErrNotStaged, p.Error)
	case code == http.StatusNotFound:
		return fmt.Errorf("%w: %s", ErrNotMounted, p.Error)
	case code == http.StatusConflict:
		return fmt.Errorf("%w: %s", ErrConflict, p.Error)
	case code == http.StatusBadRequest:
		return boot.Usagef("%s", p.Error)
	}
	return errors.New(p.Error)
}
