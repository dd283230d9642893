package boot

import (
	"io/fs"
	"strconv"
	"strings"
)

// FolderMode reads --folder-mode: an octal mode without type bits.
func FolderMode(text string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 {
		return 0, Usagef("--folder-mode: %q is not an octal mode up to 0777", text)
	}
	return fs.FileMode(n), nil
}

// NodeName checks --node-name.
func NodeName(name string) error {
	switch {
	case name == "":
		return Usagef("--node-name is required")
	case len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "":
		return Usagef("--node-name: %q is not the name of a node", name)
	}
	return nil
}
