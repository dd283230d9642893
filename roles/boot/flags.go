package boot

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v3"
)

// Env returns the environment variable of a flag: TAK_ and its name.
func Env(flag string) cli.ValueSourceChain {
	return cli.EnvVars("TAK_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
}

// Config is what the flags of this package say.
type Config struct {
	LogLevel    string
	LogFormat   string
	MetricsAddr string
	UntilStdin  bool
}

// Context returns a context that ends with ctx, and, if the configuration says
// so, when standard input ends: a child then never outlives its parent.
func (c *Config) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c.UntilStdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	return ctx, cancel
}

// Flags are the flags that every serving role has. level is the role's
// default log level.
func Flags(c *Config, level string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "log-level", Value: level, Destination: &c.LogLevel, Sources: Env("log-level"),
			Usage: "least `LEVEL` of messages logged: debug, info, warn or error",
		},
		&cli.StringFlag{
			Name: "log-format", Value: "auto", Destination: &c.LogFormat, Sources: Env("log-format"),
			Usage: "`FORMAT` of messages on standard error: json, console, or auto (console on a terminal)",
		},
		&cli.StringFlag{
			Name: "metrics-addr", Destination: &c.MetricsAddr, Sources: Env("metrics-addr"),
			Usage: "`HOST:PORT` to serve /metrics, /healthz and /readyz on; empty serves none",
		},
		&cli.BoolFlag{
			Name: "until-stdin-ends", Destination: &c.UntilStdin, Sources: Env("until-stdin-ends"),
			Usage: "end when standard input does, as a child that must not outlive its parent",
		},
	}
}
