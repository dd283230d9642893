package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// toy is a role with a flag of its own, one with arguments, and one with
// commands below it.
func toy(action cli.ActionFunc) []*cli.Command {
	var n int
	return []*cli.Command{
		{Name: "serve", Action: action, Flags: []cli.Flag{&cli.IntFlag{Name: "count", Destination: &n, Sources: Env("count")}}},
		{Name: "show", Action: action, ArgsUsage: "PATH"},
		{Name: "tools", Commands: []*cli.Command{{Name: "verify", Action: action}}},
	}
}

func TestMainExitCodes(t *testing.T) {
	fails := errors.Join(errors.New("first"), errors.New("second"))
	cases := []struct {
		args string
		env  string
		err  error
		code int
		line string
	}{
		{args: "serve", code: ExitOK},
		{args: "show x y", code: ExitOK},
		{args: "tools verify", code: ExitOK},
		{args: "serve", err: fails, code: ExitRun, line: "first; second"},
		{args: "serve", err: fmt.Errorf("open: %w", Usagef("--dir: not a directory")), code: ExitUsage, line: "open: --dir: not a directory"},
		{args: "", code: ExitUsage, line: "no role given, see tak-replicated --help"},
		{args: "nonsense", code: ExitUsage, line: `unknown role "nonsense", see tak-replicated --help`},
		{args: "--nonsense", code: ExitUsage, line: "there is no flag --nonsense"},
		{args: "serve --nonsense", code: ExitUsage, line: "there is no flag --nonsense"},
		{args: "serve --count x", code: ExitUsage, line: `--count: "x" is not a whole number`},
		{args: "serve", env: "x", code: ExitUsage, line: `TAK_COUNT: "x" is not a whole number`},
		{args: "serve extra", code: ExitUsage, line: `serve: unexpected argument "extra"`},
		{args: "tools", code: ExitUsage, line: "no command given, see tak-replicated tools --help"},
		{args: "tools nonsense", code: ExitUsage, line: `unknown command "nonsense", see tak-replicated tools --help`},
	}
	for _, c := range cases {
		t.Run(c.args+" "+c.env, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("TAK_COUNT", c.env)
			}
			var out, errOut bytes.Buffer
			commands := toy(func(context.Context, *cli.Command) error { return c.err })
			args := append([]string{Name}, strings.Fields(c.args)...)
			if code := Main(t.Context(), commands, args, &out, &errOut); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			want := ""
			if c.line != "" {
				want = Name + ": " + c.line + "\n"
			}
			if errOut.String() != want || out.Len() != 0 {
				t.Errorf("standard error %q, output %q; want %q", errOut.String(), out.String(), want)
			}
		})
	}
}

func TestGroupEndsTogether(t *testing.T) {
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	boom := errors.New("boom")

	t.Run("context", func(t *testing.T) {
		var g Group
		g.Add("a", wait)
		g.Add("b", wait)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ctx); err != nil {
			t.Errorf("error %v", err)
		}
	})
	t.Run("failure", func(t *testing.T) {
		var g Group
		g.Add("a", wait)
		g.Add("b", func(context.Context) error { return boom })
		if err := g.Run(t.Context()); !errors.Is(err, boom) || err.Error() != "b: boom" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("quiet end", func(t *testing.T) {
		var g Group
		g.Add("a", wait)
		g.Add("b", func(context.Context) error { return nil })
		if err := g.Run(t.Context()); !errors.Is(err, ErrEnded) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("failure while ending", func(t *testing.T) {
		var g Group
		g.Add("a", func(ctx context.Context) error { <-ctx.Done(); return boom })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ctx); !errors.Is(err, boom) {
			t.Errorf("error %v", err)
		}
	})
}

func TestLogger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := Config{LogLevel: "info", LogFormat: "auto"}
	log, err := c.Logger(f)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	log.Named("part").Error("shown")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"level":"error"`, `"logger":"part"`, `"msg":"shown"`, `"time":"2`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("log %q lacks %s", b, want)
		}
	}
	if strings.Contains(string(b), "hidden") || strings.Count(string(b), "\n") != 1 {
		t.Errorf("log %q is not one line", b)
	}
	for _, bad := range []Config{{LogLevel: "loud", LogFormat: "json"}, {LogLevel: "info", LogFormat: "xml"}, {LogLevel: "fatal", LogFormat: "json"}} {
		if _, err := bad.Logger(f); ExitCode(runError{err}) != ExitUsage {
			t.Errorf("%+v: error %v", bad, err)
		}
	}
}

func TestOps(t *testing.T) {
	var c Config
	o := c.NewOps()
	h := o.Handler()
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := get("/readyz"); code != 200 {
		t.Errorf("without conditions /readyz is %d", code)
	}
	o.AddReady("volume", func() error { return errors.New("no quorum") })
	o.AddReady("mount", func() error { return nil })
	if code, body := get("/readyz"); code != 503 || body != "volume: no quorum\n" {
		t.Errorf("/readyz is %d %q", code, body)
	}
	if code, _ := get("/healthz"); code != 200 {
		t.Errorf("/healthz is %d", code)
	}
	o.RemoveReady("volume")
	if code, _ := get("/readyz"); code != 200 {
		t.Errorf("/readyz is %d", code)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "go_goroutines ") || !strings.Contains(body, "process_open_fds ") {
		t.Errorf("/metrics is %d %.200q", code, body)
	}
}

func TestOpsServesAndStops(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var c Config
	go func() { done <- ServeHTTP(ctx, l, c.NewOps().Handler()) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(b) != "ok\n" {
		t.Errorf("/healthz says %q", b)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	taken := Config{MetricsAddr: "256.0.0.1:1"}
	if err := taken.NewOps().Run(t.Context()); err == nil {
		t.Error("listening on an impossible address succeeded")
	}
}
