package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Ops is a process's health and metrics. Safe for concurrent use.
type Ops struct {
	// Registry takes the metrics of the process.
	Registry *prometheus.Registry

	addr  string
	l     net.Listener // what Listen opened
	relay http.Handler // answers /metrics in the registry's place, if not nil
	mu    struct {
		sync.Mutex
		ready map[string]func() error
	}
}

// NewOps returns what Run serves on the configured address.
func (c *Config) NewOps() *Ops {
	o := &Ops{Registry: prometheus.NewRegistry(), addr: c.MetricsAddr}
	o.mu.ready = map[string]func() error{}
	o.Registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return o
}

// Apart returns one with the same metrics and a readiness of its own, which
// nobody serves.
func (o *Ops) Apart() *Ops {
	a := &Ops{Registry: o.Registry}
	a.mu.ready = map[string]func() error{}
	return a
}

// AddReady names a condition of readiness: check returns why it does not hold.
func (o *Ops) AddReady(name string, check func() error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.ready[name] = check
}

// RemoveReady forgets a condition.
func (o *Ops) RemoveReady(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mu.ready, name)
}

// Ready returns nil when every condition holds, else all that do not.
func (o *Ops) Ready() error {
	o.mu.Lock()
	checks := maps.Clone(o.mu.ready)
	o.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if err := checks[name](); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Handler answers /healthz (the process serves), /readyz and /metrics.
func (o *Ops) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", o.Metrics())
	return mux
}

// Metrics answers with the registry's metrics, or those of Relay.
func (o *Ops) Metrics() http.Handler {
	if o.relay != nil {
		return o.relay
	}
	return promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{})
}

// Relay has h answer for metrics: those of another process, which this one keeps.
// It is called before Run.
func (o *Ops) Relay(h http.Handler) { o.relay = h }

// Listen opens the address before Run does, to know early that it can be had.
// Who calls it calls Close in the end.
func (o *Ops) Listen() error {
	if o.addr == "" {
		return nil
	}
	l, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	o.l = &crowd{Listener: l}
	return nil
}

// Close closes what Listen has opened.
func (o *Ops) Close() {
	if o.l != nil {
		o.l.Close() // Run may have done so
	}
}

// Run serves until ctx ends. Without an address it only waits.
func (o *Ops) Run(ctx context.Context) error {
	if o.addr == "" {
		<-ctx.Done()
		return nil
	}
	if o.l == nil {
		if err := o.Listen(); err != nil {
			return err
		}
	}
	return ServeHTTP(ctx, o.l, o.Handler())
}

// Bounds of every HTTP server of the program.
const (
	headerTimeout = 5 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 2 * time.Second
	headerBytes   = 16 << 10
)

// ServeHTTP serves on l until ctx ends, then lets requests finish for a
// moment.
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	return serve(ctx, l, &http.Server{Handler: h})
}

// ServeHTTPConn is ServeHTTP with a context for each connection.
func ServeHTTPConn(ctx context.Context, l net.Listener, h http.Handler, conn func(context.Context, net.Conn) context.Context) error {
	return serve(ctx, l, &http.Server{Handler: h, ConnContext: conn})
}

// serverFaults passes on what a server says of itself, and not what strangers make it
// say: their handshakes would fill the log.
type serverFaults struct{ io.Writer }

func (f serverFaults) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		return len(line), nil
	}
	return f.Writer.Write(line)
}

func serve(ctx context.Context, l net.Listener, s *http.Server) error {
	s.ReadHeaderTimeout, s.IdleTimeout, s.MaxHeaderBytes = headerTimeout, idleTimeout, headerBytes
	s.ErrorLog = log.New(serverFaults{os.Stderr}, "", log.LstdFlags)
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if s.Shutdown(grace) != nil {
			s.Close()
		}
	})
	err := s.Serve(l)
	if stop() {
		s.Close()
		return err
	}
	<-stopped
	return nil
}
