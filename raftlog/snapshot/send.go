package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Source is the replica that sends.
type Source interface {
	// Open returns the newest checkpoint.
	Open() (Reader, error)
	// Continues reports whether the journal holds everything after index.
	Continues(index uint64) bool
	// Term is the term in which this replica leads, 0 if it does not.
	Term() uint64
	// Committed is the index up to which everything is known to be committed: once a
	// leader is confirmed, at least what any sender before had applied, of whom the other
	// side may have parts.
	Committed() uint64
}

// Progress is told how far a transfer is: the checkpoint's index, and how many
// parts and bytes have been dealt with. The sender's is told that something is offered,
// and then each time that the receiver has answered or taken something, also when the
// numbers are the same. It must not block.
type Progress func(index, parts, bytes uint64)

// roundsMost bounds how often a newer checkpoint is begun in one conversation.
// The next conversation resumes.
const roundsMost = 16

// Send sends the newest checkpoint over a stream once it has a place of limits,
// and returns nil when the other side has installed it. Closing the stream ends
// it. While it waits for its place, the other side has a stream on which nothing
// is offered yet.
func Send(ctx context.Context, rw io.ReadWriter, src Source, limits *Limits, progress Progress) error {
	s := &sender{pipe: newPipe(rw), ctx: ctx, src: src, limits: limits, progress: progress}
	if err := s.sendPreface(); err != nil {
		return fmt.Errorf("send preface: %w", err)
	}
	release, err := limits.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	for range roundsMost {
		done, err := s.round()
		if err != nil || done {
			return err
		}
	}
	return errors.New("journal moves faster than the checkpoint is sent")
}

type sender struct {
	*pipe
	ctx      context.Context
	src      Source
	limits   *Limits
	progress Progress

	cp           Reader
	holes        bool // the receiver knows them
	index        uint64
	parts, bytes uint64
	buf          []byte
}

// round sends one checkpoint, and reports whether it was installed.
func (s *sender) round() (bool, error) {
	cp, err := s.src.Open()
	if err != nil {
		return false, fmt.Errorf("open checkpoint: %w", err)
	}
	defer cp.Close()
	s.cp, s.index, s.parts, s.bytes = cp, cp.Meta().Index, 0, 0
	s.progress(s.index, 0, 0)
	s.begin(typeOffer)
	s.out = appendOffer(s.out, cp.Meta())
	knows, err := s.ask(typeAccept)
	if err != nil {
		return false, fmt.Errorf("offer checkpoint %d: %w", s.index, err)
	}
	s.holes = len(knows) > 0 && knows[0]&knowsHoles != 0
	if err := s.sendParts(); err != nil {
		return false, fmt.Errorf("send checkpoint %d: %w", s.index, err)
	}
	s.begin(typeDone)
	s.out = appendPair(s.out, s.parts, s.bytes)
	if _, err := s.ask(typeReady); err != nil {
		return false, fmt.Errorf("complete checkpoint %d: %w", s.index, err)
	}
	s.progress(s.index, s.parts, s.bytes)
	if !s.src.Continues(s.index) {
		return false, nil
	}
	s.begin(typeInstall)
	term := s.src.Term()
	s.out = appendPair(s.out, max(cp.NewestIndex(), s.src.Committed()), term)
	if _, err := s.ask(typeInstalled); err != nil {
		return false, fmt.Errorf("install checkpoint %d: %w", s.index, err)
	}
	return true, nil
}

// ask sends the frame that was begun, and waits for an answer.
func (s *sender) ask(answer frameType) ([]byte, error) {
	if err := s.endFlush(); err != nil {
		return nil, err
	}
	return s.expect(answer)
}

func (s *sender) sendParts() error {
	for {
		parts, err := s.nextParts()
		if err != nil {
			return err
		}
		if len(parts) == 0 {
			return nil
		}
		t := typeParts
		if s.holes {
			t = typeSparse
		}
		s.begin(t)
		s.out = appendParts(s.out, parts, s.holes)
		b, err := s.ask(typeHave)
		if err != nil {
			return err
		}
		have, err := decodeHave(b, len(parts))
		if err != nil {
			return err
		}
		s.progress(s.index, s.parts, s.bytes)
		for i, p := range parts {
			if err := s.sendPart(i, p, have[i]); err != nil {
				return fmt.Errorf("part %q: %w", p.Name, err)
			}
			s.parts++
			s.progress(s.index, s.parts, s.bytes)
		}
	}
}

// nextParts gathers as many parts as one frame names.
func (s *sender) nextParts() ([]Part, error) {
	var parts []Part
	size := 2
	for len(parts) < partsMost && size+partBytes+8+nameMost <= frameMost {
		p, err := s.cp.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("next part: %w", err)
		}
		if len(p.Name) == 0 || len(p.Name) > nameMost {
			return nil, fmt.Errorf("part with a name of %d bytes", len(p.Name))
		}
		parts = append(parts, p)
		size += partBytes + 8 + len(p.Name)
	}
	return parts, nil
}

// sendPart sends what the other side lacks of a part.
func (s *sender) sendPart(number int, p Part, have uint64) error {
	if have >= p.Size {
		return s.ctx.Err()
	}
	r, err := s.cp.Open(p.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if s.buf == nil {
		s.buf = make([]byte, chunkMost)
	}
	for offset := have; offset < p.Size; {
		n, err := s.sendHole(number, p, r, offset)
		if err != nil {
			return err
		}
		if n > 0 {
			offset += n
			continue
		}
		want := min(uint64(len(s.buf)), p.Size-offset)
		read, readAt, err := r.ReadAt(s.buf[:want], int64(offset))
		if err != nil && err != io.EOF {
			return fmt.Errorf("read at %d: %w", offset, err)
		}
		if read > 0 {
			if err := s.sendChunk(chunk{number, offset, readAt, s.buf[:read]}); err != nil {
				return err
			}
		}
		offset += uint64(read)
		if read == 0 || err == io.EOF {
			return nil
		}
	}
	return nil
}

// sendHole sends a hole, if there is one at an offset, and returns its length.
func (s *sender) sendHole(number int, p Part, r PartReader, offset uint64) (uint64, error) {
	if !s.holes || p.Data == p.Size {
		return 0, nil
	}
	n, readAt, err := r.Hole(offset)
	if err != nil {
		return 0, fmt.Errorf("look at %d: %w", offset, err)
	}
	if n = min(n, p.Size-offset); n == 0 {
		return 0, nil
	}
	s.begin(typeHole)
	s.out = appendHole(s.out, hole{number, offset, readAt, n})
	return n, errors.Join(s.end(), s.ctx.Err())
}

func (s *sender) sendChunk(c chunk) error {
	if err := s.limits.wait(s.ctx, len(c.data)); err != nil {
		return err
	}
	s.begin(typeData)
	s.out = append(appendChunkHead(s.out, c), c.data...)
	s.bytes += uint64(len(c.data))
	s.progress(s.index, s.parts, s.bytes)
	return s.end()
}
