package snapshot

import (
	"errors"
	"fmt"
	"io"
)

// Sink is the replica that receives. One goroutine calls it.
type Sink interface {
	// Begin starts or resumes receiving a checkpoint. An error refuses it.
	Begin(meta Meta) (Writer, error)
	// Install replaces the replica's state by a checkpoint whose writer was
	// finished. fence is how new its contents may be, term that of the sender.
	Install(meta Meta, w Writer, fence, term uint64) error
}

// Receive takes what Send sends, and returns nil when it is installed.
func Receive(rw io.ReadWriter, sink Sink, progress Progress) error {
	r := &receiver{pipe: newPipe(rw), sink: sink, progress: progress}
	err := r.run()
	if r.w != nil {
		err = errors.Join(err, r.w.Abort())
	}
	return err
}

type receiver struct {
	*pipe
	sink     Sink
	progress Progress

	meta         Meta
	w            Writer
	finished     bool
	parts        []Part
	total, bytes uint64
}

func (r *receiver) run() error {
	if err := r.readPreface(); err != nil {
		return err
	}
	for {
		t, b, err := r.read()
		if err != nil {
			return fmt.Errorf("receive checkpoint: %w", err)
		}
		installed, err := r.take(t, b)
		if err != nil {
			r.refuse(err)
			return fmt.Errorf("receive checkpoint %d: %w", r.meta.Index, err)
		}
		if installed {
			return nil
		}
	}
}

// take deals with one frame, and reports whether that was the end.
func (r *receiver) take(t frameType, b []byte) (installed bool, err error) {
	switch {
	case t == typeRefuse:
		return false, &RefusedError{Reason: string(b)}
	case t == typeOffer:
		return false, r.offer(b)
	case r.w == nil:
		return false, fmt.Errorf("frame of type %d before an offer", t)
	case (t == typeParts || t == typeSparse) && !r.finished:
		return false, r.takeParts(b, t == typeSparse)
	case t == typeData && !r.finished:
		return false, r.takeData(b)
	case t == typeHole && !r.finished:
		return false, r.takeHole(b)
	case t == typeDone && !r.finished:
		return false, r.done(b)
	case t == typeInstall && r.finished:
		return true, r.install(b)
	}
	return false, fmt.Errorf("frame of type %d out of place", t)
}

func (r *receiver) offer(b []byte) error {
	meta, err := decodeOffer(b)
	if err != nil {
		return err
	}
	if r.w != nil {
		w := r.w
		r.w = nil
		if err := w.Abort(); err != nil {
			return fmt.Errorf("leave checkpoint %d: %w", r.meta.Index, err)
		}
	}
	r.meta, r.finished, r.parts, r.total, r.bytes = meta, false, nil, 0, 0
	if r.w, err = r.sink.Begin(meta); err != nil {
		r.w = nil
		return err
	}
	r.begin(typeAccept)
	r.out = append(r.out, knowsHoles)
	return r.endFlush()
}

func (r *receiver) takeParts(b []byte, sparse bool) error {
	parts, err := decodeParts(b, sparse)
	if err != nil {
		return err
	}
	have := make([]uint64, len(parts))
	for i, p := range parts {
		if have[i], err = r.w.Have(p); err != nil {
			return fmt.Errorf("part %q: %w", p.Name, err)
		}
	}
	r.parts = parts
	r.total += uint64(len(parts))
	r.begin(typeHave)
	r.out = appendHave(r.out, have)
	r.progress(r.meta.Index, r.total, r.bytes)
	return r.endFlush()
}

func (r *receiver) takeData(b []byte) error {
	c, err := decodeChunk(b)
	if err != nil {
		return err
	}
	p, err := r.part(c.part, c.offset, uint64(len(c.data)))
	if err != nil {
		return err
	}
	r.bytes += uint64(len(c.data))
	r.progress(r.meta.Index, r.total, r.bytes)
	if err := r.w.Write(p, c.offset, c.data, c.readAt); err != nil {
		return fmt.Errorf("part %q: %w", p.Name, err)
	}
	return nil
}

func (r *receiver) takeHole(b []byte) error {
	h, err := decodeHole(b)
	if err != nil {
		return err
	}
	p, err := r.part(h.part, h.offset, h.length)
	if err != nil {
		return err
	}
	if h.readAt == 0 {
		return fmt.Errorf("part %q has a hole that is damaged", p.Name)
	}
	r.progress(r.meta.Index, r.total, r.bytes)
	if err := r.w.Hole(p, h.offset, h.length, h.readAt); err != nil {
		return fmt.Errorf("part %q: %w", p.Name, err)
	}
	return nil
}

// part is one of the last parts, of which n bytes come.
func (r *receiver) part(number int, offset, n uint64) (Part, error) {
	if number >= len(r.parts) {
		return Part{}, fmt.Errorf("data of part %d of %d", number, len(r.parts))
	}
	p := r.parts[number]
	if offset > p.Size || n > p.Size-offset {
		return Part{}, fmt.Errorf("part %q of %d bytes got %d at %d", p.Name, p.Size, n, offset)
	}
	return p, nil
}

func (r *receiver) done(b []byte) error {
	parts, bytes, err := decodePair(b)
	if err != nil {
		return err
	}
	if parts != r.total || bytes != r.bytes {
		return fmt.Errorf("%d parts and %d bytes were sent, %d and %d came", parts, bytes, r.total, r.bytes)
	}
	if err := r.w.Finish(); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	r.finished = true
	return r.answer(typeReady)
}

func (r *receiver) install(b []byte) error {
	fence, term, err := decodePair(b)
	if err != nil {
		return err
	}
	if fence < r.meta.Index {
		return fmt.Errorf("fence %d before the checkpoint", fence)
	}
	w := r.w
	r.w = nil
	if err := r.sink.Install(r.meta, w, fence, term); err != nil {
		return err
	}
	return r.answer(typeInstalled)
}

func (r *receiver) answer(t frameType) error {
	r.begin(t)
	return r.endFlush()
}

// refuse tells the sender why; that it may not hear of it is no matter.
func (r *receiver) refuse(err error) {
	text := err.Error()
	r.begin(typeRefuse)
	r.out = append(r.out, text[:min(len(text), 512)]...)
	_ = r.endFlush()
}
