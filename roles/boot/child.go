package boot

import (
	"os"
	"strings"
)

// Executable is this program's file, to start it in another role. A program
// that "go run" built, or that was replaced by a newer one, may be gone: then it
// is reached through the kernel.
func Executable() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(exe); err != nil {
		return "/proc/self/exe", nil
	}
	return exe, nil
}

// ChildEnvironment is the environment without the variables that stand for
// flags: children get all of theirs on the command line.
func ChildEnvironment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "TAK_") {
			env = append(env, e)
		}
	}
	return env
}
