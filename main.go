// Command tak-replicated is all of tak-replicated: each of its roles is a
// subcommand.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"tak-os.org/tak-replicated/roles"
)

func main() {
	if code, ok := roles.Shim(os.Args); ok {
		os.Exit(code)
	}
	roles.Tune(os.Args)
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(roles.Main(ctx, os.Args, os.Stdout, os.Stderr))
}
