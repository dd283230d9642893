package ui

import (
	"bytes"
	"context"
	_ "embed"
	"html/template"
	"net"
	"net/http"
	"strconv"
	"time"

	"tak-os.org/tak-replicated/kube"
	"tak-os.org/tak-replicated/kube/api"
	"tak-os.org/tak-replicated/roles/boot"
	"tak-os.org/tak-replicated/roles/live"
)

// Source is where the page has its facts from.
type Source interface {
	Volumes(ctx context.Context) ([]*api.ReplicatedVolume, error)
	// Events are recent ones about any volume.
	Events(ctx context.Context) ([]kube.SeenEvent, error)
	// EventsAbout are those about a volume and its claim. Some may come with an error.
	EventsAbout(ctx context.Context, v *api.ReplicatedVolume) ([]kube.SeenEvent, error)
	// Workers is what a volume's workers say. An error says why they could not be asked.
	Workers(ctx context.Context, v *api.ReplicatedVolume) (*live.Answers, error)
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// patience bounds the questions for one page.
const patience = 10 * time.Second

// Check refuses an address that others than this machine, or Pod, could reach.
func Check(flag, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return boot.Usagef("--%s: %v", flag, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return boot.Usagef("--%s: %q is not a loopback address; without a certificate the page is for whoever may forward a port", flag, addr)
	}
	return nil
}

// Handler serves the page to this machine's own names.
func Handler(s Source) http.Handler { return policy(local(pages(s))) }

// Guarded serves the page to whoever the reviewer lets in.
func Guarded(s Source, r Reviewer) http.Handler { return policy(newDoor(r).guard(pages(s))) }

func pages(s Source) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		ask(w, r, s, func(ctx context.Context, volumes []*api.ReplicatedVolume) (string, any) {
			q := r.URL.Query()
			n, _ := strconv.Atoi(q.Get("page")) // the first page for anything else
			events, _ := s.Events(ctx)          // the page is of use without them
			return "overview", list(volumes, events, q.Get("health"), q.Get("q"), n, time.Now())
		})
	})
	mux.HandleFunc("GET /volumes/{name}", func(w http.ResponseWriter, r *http.Request) {
		ask(w, r, s, func(ctx context.Context, volumes []*api.ReplicatedVolume) (string, any) {
			for _, v := range volumes {
				if v.Name == r.PathValue("name") {
					events, _ := s.EventsAbout(ctx, v)
					d := about(v, events, time.Now())
					d.Open = openOn(s.Workers(ctx, v))
					return "detail", d
				}
			}
			return "", nil
		})
	})
	return mux
}

// local lets only this machine's own names in.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this page is served to localhost only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// policy keeps browsers from doing anything but showing the page.
func policy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// ask gathers the facts and shows what view makes of them; a view without a name
// is a page that does not exist.
func ask(w http.ResponseWriter, r *http.Request, s Source, view func(context.Context, []*api.ReplicatedVolume) (string, any)) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	volumes, err := s.Volumes(ctx)
	if err != nil {
		show(w, http.StatusServiceUnavailable, "failed", map[string]string{"Title": "No answer", "Why": boot.OneLine(err), "Now": stamp(time.Now())})
		return
	}
	name, data := view(ctx, volumes)
	if name == "" {
		show(w, http.StatusNotFound, "failed", map[string]string{"Title": "No such volume", "Why": "No volume has this name.", "Now": stamp(time.Now())})
		return
	}
	show(w, http.StatusOK, name, data)
}

func show(w http.ResponseWriter, code int, name string, data any) {
	var text bytes.Buffer
	if err := page.ExecuteTemplate(&text, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // a reader that has gone needs no answer
}
