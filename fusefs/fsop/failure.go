package fsop

import (
	"errors"
	"fmt"
)

// Code is why no answer is known. Closed and append-only: it crosses the wire.
type Code uint8

const (
	NotCoordinator Code = 1 // ask Hint (a member id, 0 unknown); the operation was not proposed
	NoQuorum       Code = 2 // authority could not be confirmed in time
	Uncertain      Code = 3 // proposed, outcome unknown: retry under the same identity
	Fenced         Code = 4 // the session or its epoch has ended
	Denied         Code = 5 // credentials do not allow it
	Busy           Code = 6 // a bound is reached; retry later
	StateLost      Code = 7 // the replica's state is lost
	Malformed      Code = 8 // the request could not be understood; a bug or a hostile peer
)

var codeNames = [...]string{
	NotCoordinator: "not coordinator", NoQuorum: "no quorum", Uncertain: "uncertain", Fenced: "fenced",
	Denied: "denied", Busy: "busy", StateLost: "replica state lost", Malformed: "malformed request",
}

// String returns the failure's name.
func (c Code) String() string {
	if int(c) < len(codeNames) && codeNames[c] != "" {
		return codeNames[c]
	}
	return fmt.Sprintf("failure %d", uint8(c))
}

// Failure is the error of every Caller.
type Failure struct {
	Code   Code
	Hint   uint64 // NotCoordinator: the member to ask
	Detail string // for people; never a file's name or contents
}

// Fail builds a failure with a detail for people.
func Fail(c Code, format string, args ...any) *Failure {
	return &Failure{Code: c, Detail: fmt.Sprintf(format, args...)}
}

func (f *Failure) Error() string {
	if f.Detail == "" {
		return f.Code.String()
	}
	return f.Code.String() + ": " + f.Detail
}

// Is makes errors.Is match failures by code.
func (f *Failure) Is(target error) bool {
	t, ok := target.(*Failure)
	return ok && t.Code == f.Code
}

// LostError says that work is lost that an application was told is done, and why:
// ENOSPC, or EIO for any other cause.
type LostError struct{ Errno Errno }

func (e *LostError) Error() string { return "work on the file was lost: " + e.Errno.Error() }

// Unwrap makes it an uncertain outcome for whoever asks no further.
func (e *LostError) Unwrap() error { return &Failure{Code: Uncertain} }

// Causes is why work is lost for two causes, of which OK is none.
func Causes(a, b Errno) Errno {
	switch {
	case a == OK || a == b:
		return b
	case b == OK:
		return a
	}
	return EIO
}

// CodeOf returns err's code, or 0 when it is not a failure.
func CodeOf(err error) Code {
	var f *Failure
	if errors.As(err, &f) {
		return f.Code
	}
	return 0
}
