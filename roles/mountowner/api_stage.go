package mountowner

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"tak-os.org/tak-replicated/csi/names"
	"tak-os.org/tak-replicated/roles/boot"
)

// The part of the API that a node's frontend uses, version 1:
//
//	PUT    /v1/stage                     a StageRequest; answers a Status
//	DELETE /v1/stage?path=PATH&volume=NAME
//	PUT    /v1/publish                   a PublishRequest; 424 when it has to be staged first
//	DELETE /v1/publish?path=PATH&volume=NAME
//	GET    /v1/stats?path=PATH&volume=NAME
//	                                     a Usage
//	PUT    /v1/credentials?volume=NAME   Credentials, renewed
//
// All can be repeated. 409 says that a mount is in use or another one is there,
// 423 that another node owns the volume.
const (
	pathStage       = "/v1/stage"
	pathPublish     = "/v1/publish"
	pathStats       = "/v1/stats"
	pathCredentials = "/v1/credentials"
)

func (o *Owner) handleStaging(mux *http.ServeMux) {
	mux.HandleFunc("PUT "+pathStage, func(w http.ResponseWriter, r *http.Request) {
		body, ok := readBody(w, r, requestBytesMost)
		if !ok {
			return
		}
		q, err := parseStage(body)
		if err != nil {
			answer(w, nil, boot.Usagef("%w", err))
			return
		}
		st, err := o.Stage(r.Context(), q)
		answer(w, st, err)
	})
	mux.HandleFunc("DELETE "+pathStage, func(w http.ResponseWriter, r *http.Request) {
		if volume, path, ok := named(w, r); ok {
			answer(w, struct{}{}, o.Unstage(r.Context(), volume, path))
		}
	})
	mux.HandleFunc("PUT "+pathPublish, func(w http.ResponseWriter, r *http.Request) {
		var q PublishRequest
		if !decode(w, r, &q) {
			return
		}
		answer(w, struct{}{}, o.Publish(r.Context(), q))
	})
	mux.HandleFunc("DELETE "+pathPublish, func(w http.ResponseWriter, r *http.Request) {
		if volume, path, ok := named(w, r); ok {
			answer(w, struct{}{}, o.Unpublish(r.Context(), volume, path))
		}
	})
	mux.HandleFunc("GET "+pathStats, func(w http.ResponseWriter, r *http.Request) {
		if volume, path, ok := named(w, r); ok {
			u, err := o.Stats(r.Context(), volume, path)
			answer(w, u, err)
		}
	})
	mux.HandleFunc("PUT "+pathCredentials, func(w http.ResponseWriter, r *http.Request) {
		var c Credentials
		if !decode(w, r, &c) {
			return
		}
		volume := r.URL.Query().Get("volume")
		for _, st := range o.Mounts() {
			if st.Volume == volume {
				answer(w, struct{}{}, o.Refresh(volume, c))
				return
			}
		}
		answer(w, nil, ErrNotMounted)
	})
}

// named reads which volume is meant, and where; false when it has answered already.
func named(w http.ResponseWriter, r *http.Request) (volume, path string, ok bool) {
	q := r.URL.Query()
	volume, path = q.Get("volume"), q.Get("path")
	if ok = names.Subdomain(volume); !ok {
		answer(w, nil, boot.Usagef("request: %.200q is no volume's name", volume))
	}
	return volume, path, ok
}

// bodyPatience is how long a caller may take to send a request's body.
const bodyPatience = 5 * time.Second

// readBody reads a request's body; false when it has answered already.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, bool) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyPatience))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		answer(w, nil, boot.Usagef("request: %v", err))
		return nil, false
	}
	_ = c.SetReadDeadline(time.Time{}) // what is done with it may take longer
	return body, true
}

// decode reads a request's body; false when it has answered already.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	body, ok := readBody(w, r, requestBytesMost)
	if !ok {
		return false
	}
	err := json.Unmarshal(body, into)
	if err != nil {
		answer(w, nil, boot.Usagef("request: %v", err))
	}
	return err == nil
}

// Stage mounts a volume, and returns when it serves.
func (c *Client) Stage(ctx context.Context, q StageRequest) (*Status, error) {
	var st Status
	return &st, c.call(ctx, http.MethodPut, pathStage, q, &st)
}

// Unstage ends a volume's mount.
func (c *Client) Unstage(ctx context.Context, volume, path string) error {
	return c.call(ctx, http.MethodDelete, pathStage+"?"+url.Values{"path": {path}, "volume": {volume}}.Encode(), nil, nil)
}

// Publish makes a staged volume appear at a target.
func (c *Client) Publish(ctx context.Context, q PublishRequest) error {
	return c.call(ctx, http.MethodPut, pathPublish, q, nil)
}

// Unpublish takes it away from there.
func (c *Client) Unpublish(ctx context.Context, volume, target string) error {
	return c.call(ctx, http.MethodDelete, pathPublish+"?"+url.Values{"path": {target}, "volume": {volume}}.Encode(), nil, nil)
}

// Stats tells how full the volume at a path is.
func (c *Client) Stats(ctx context.Context, volume, path string) (*Usage, error) {
	var u Usage
	return &u, c.call(ctx, http.MethodGet, pathStats+"?"+url.Values{"path": {path}, "volume": {volume}}.Encode(), nil, &u)
}

// Refresh replaces the credentials of a staged volume.
func (c *Client) Refresh(ctx context.Context, volume string, creds Credentials) error {
	return c.call(ctx, http.MethodPut, pathCredentials+"?"+url.Values{"volume": {volume}}.Encode(), creds, nil)
}
