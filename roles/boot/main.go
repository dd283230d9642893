package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"
)

// Name is the program's name.
const Name = "tak-replicated"

// Exit codes of the program.
const (
	ExitOK    = 0
	ExitRun   = 1
	ExitUsage = 2
)

// usageError is a fault of whoever wrote the command line or configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef returns an error that ends the program with ExitUsage.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// IsUsage reports whether err is, or wraps, what Usagef returned.
func IsUsage(err error) bool {
	var usage usageError
	return errors.As(err, &usage)
}

// runError marks what a role returned, in contrast to what the command line's
// parser says.
type runError struct{ error }

func (e runError) Unwrap() error { return e.error }

// Coder is an error that has an exit code of its own.
type Coder interface {
	error
	ExitCode() int
}

// ExitCode returns the exit code for what a role returned.
func ExitCode(err error) int {
	var run runError
	var own Coder
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		return own.ExitCode()
	case errors.As(err, &run) && !IsUsage(err):
		return ExitRun
	}
	return ExitUsage
}

// Main runs the command that args name and returns the exit code. Whatever
// goes wrong is one line on errOut.
func Main(ctx context.Context, commands []*cli.Command, args []string, out, errOut io.Writer) int {
	err := App(commands, out, errOut).Run(ctx, args)
	if err != nil {
		fmt.Fprintf(errOut, "%s: %s\n", Name, OneLine(err))
	}
	return ExitCode(err)
}

// OneLine returns err's message without line breaks, in plain words.
func OneLine(err error) string {
	return Plain(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
}

// App returns the command line's root.
func App(commands []*cli.Command, out, errOut io.Writer) *cli.Command {
	root := &cli.Command{
		Name:      Name,
		Usage:     "replicated POSIX storage for Kubernetes",
		UsageText: Name + " ROLE [options]\n" + Name + " ROLE --help",
		Commands:  commands,
		Action:    noCommand,
		Writer:    out,
		ErrWriter: errOut,
	}
	harden(root)
	return root
}

// harden makes a command and those below it speak one line about bad input
// instead of printing help, and tell whose error it is.
func harden(cmd *cli.Command) {
	cmd.HideHelpCommand = true
	cmd.ExitErrHandler = func(context.Context, *cli.Command, error) {}
	cmd.OnUsageError = func(_ context.Context, _ *cli.Command, err error, _ bool) error { return err }
	action := cmd.Action
	if len(cmd.Commands) > 0 && action == nil {
		action = noCommand
	}
	cmd.Action = func(ctx context.Context, cmd *cli.Command) error {
		switch {
		case !cmd.Args().Present() || cmd.ArgsUsage != "":
		case len(cmd.Commands) > 0:
			return noCommand(ctx, cmd)
		default:
			return Usagef("%s: unexpected argument %q", cmd.Name, cmd.Args().First())
		}
		if err := action(ctx, cmd); err != nil {
			return runError{err}
		}
		return nil
	}
	for _, sub := range cmd.Commands {
		harden(sub)
	}
}

// noCommand answers a command that has only others below it.
func noCommand(_ context.Context, cmd *cli.Command) error {
	what := "command"
	if cmd.Root() == cmd {
		what = "role"
	}
	if cmd.Args().Present() {
		return Usagef("unknown %s %q, see %s --help", what, cmd.Args().First(), cmd.FullName())
	}
	return Usagef("no %s given, see %s --help", what, cmd.FullName())
}
