package power

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// diskEnv makes the test binary a disk's process: it holds a diskConfig. It is
// one of its own because the kernel waits for it: whoever waits for the kernel
// can't also answer it.
const diskEnv = "TAK_POWER_DISK"

type diskConfig struct {
	Medium, Served string
	Lag            time.Duration
}

// diskCommand is a line on the process's input, answered by a diskAnswer.
type diskCommand struct {
	Cut  bool // else it is turned off in order, unless it was cut before
	Left Survivors
	Seed uint64
}

type diskAnswer struct {
	Error string
	Loss  Loss
}

// BeDisk is the disk and ends the process if this is its process.
func BeDisk() {
	config := os.Getenv(diskEnv)
	if config == "" {
		return
	}
	if err := runDisk(config, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "disk:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runDisk(config string, in io.Reader, out io.Writer) error {
	var c diskConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	f, err := os.OpenFile(c.Medium, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	s := newStore(f, c.Lag)
	server, err := mountFile(c.Served, s, st.Size())
	if err != nil {
		return err
	}
	go func() {
		if err := server.serve(); err != nil {
			fmt.Fprintln(os.Stderr, "disk:", err)
			os.Exit(1)
		}
	}()
	answers, commands := json.NewEncoder(out), json.NewDecoder(in)
	if err := answers.Encode(diskAnswer{}); err != nil {
		return err
	}
	for {
		var command diskCommand
		if err := commands.Decode(&command); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var a diskAnswer
		left := All
		if command.Cut {
			left = command.Left
		}
		if err := s.Cut(left, command.Seed); err != nil {
			a.Error = err.Error()
		}
		a.Loss = s.Lost()
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}
