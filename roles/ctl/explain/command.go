package explain

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"tak-os.org/tak-replicated/roles/boot"
)

// Command returns `ctl explain`.
func Command() *cli.Command {
	return &cli.Command{
		Name: "explain", ArgsUsage: "NAME",
		Usage: "what a condition, reason or failure means, and what to do; without a name, list them",
		Action: func(_ context.Context, cmd *cli.Command) error {
			return run(strings.Join(cmd.Args().Slice(), " "), os.Stdout)
		},
	}
}

func run(name string, w io.Writer) error {
	if name == "" {
		for _, e := range Entries() {
			fmt.Fprintf(w, "%-26s %s\n", e.Name, e.Where)
		}
		return nil
	}
	found := Find(name)
	if len(found) == 0 {
		if near := Near(name); len(near) > 0 {
			return boot.Usagef("nothing is called %q; did you mean %s?", name, strings.Join(near, ", "))
		}
		return boot.Usagef("nothing is called %q; `ctl explain` lists all names", name)
	}
	for _, e := range found {
		e.Print(w)
	}
	return nil
}
