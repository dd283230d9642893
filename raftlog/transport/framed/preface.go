package framed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is that of the preface and of the frame header.
const Version = 1

// PrefaceSize is the length of a preface in bytes.
const PrefaceSize = 8

const (
	greetingSize     = 8
	greetingTextMost = 512
)

var magic = []byte("TAKR")

// Kind is what a connection is for. Values are part of the protocol.
type Kind uint8

// The kinds of connection.
const (
	KindPeerMessage Kind = 1
	KindPeerStream  Kind = 2
	KindClient      Kind = 3
	KindOperator    Kind = 4
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case KindPeerMessage:
		return "peer-message"
	case KindPeerStream:
		return "peer-stream"
	case KindClient:
		return "client"
	case KindOperator:
		return "operator"
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// Code is a listener's answer to a preface. Values are part of the protocol.
type Code uint8

// The answers to a preface.
const (
	CodeWelcome Code = 0
	CodeVersion Code = 1
	CodeKind    Code = 2
	CodeRole    Code = 3
	CodeBusy    Code = 4
)

// ErrNotOurProtocol says that the other side does not speak this protocol.
var ErrNotOurProtocol = errors.New("not the tak-replicated protocol")

// RefusedError is the listener's refusal of a connection.
type RefusedError struct {
	Code Code
	Text string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("connection refused by the listener (code %d): %s", e.Code, e.Text)
}

// AppendPreface appends the preface of a connection of kind k.
func AppendPreface(b []byte, k Kind) []byte {
	b = append(b, magic...)
	return append(b, Version, byte(k), 0, 0)
}

// ParsePreface reads a preface. A *RefusedError is what to answer.
func ParsePreface(b []byte) (Kind, error) {
	if len(b) != PrefaceSize || !bytes.Equal(b[:4], magic) {
		return 0, ErrNotOurProtocol
	}
	if b[4] != Version {
		return 0, &RefusedError{CodeVersion, fmt.Sprintf("version %d is not known here, %d is", b[4], Version)}
	}
	if b[6] != 0 || b[7] != 0 {
		return 0, ErrNotOurProtocol
	}
	return Kind(b[5]), nil
}

// appendGreeting appends the answer to a preface.
func appendGreeting(b []byte, code Code, text string) []byte {
	if len(text) > greetingTextMost {
		text = text[:greetingTextMost]
	}
	b = append(b, magic...)
	b = append(b, Version, byte(code))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// readGreeting reads the answer to a preface; a refusal is a *RefusedError.
func readGreeting(r io.Reader) error {
	var b [greetingSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return fmt.Errorf("read greeting: %w", err)
	}
	n := int(binary.LittleEndian.Uint16(b[6:]))
	if !bytes.Equal(b[:4], magic) || n > greetingTextMost {
		return ErrNotOurProtocol
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("read greeting: %w", err)
	}
	if code := Code(b[5]); code != CodeWelcome {
		return &RefusedError{code, printable(text)}
	}
	if b[4] != Version {
		return &RefusedError{CodeVersion, fmt.Sprintf("the listener speaks version %d, not %d", b[4], Version)}
	}
	return nil
}

// printable keeps a stranger's text from playing tricks in a log or terminal.
func printable(text []byte) string {
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '.'
		}
		return r
	}, bytes.ToValidUTF8(text, []byte("."))))
}
