package fsop

// Seal closes the volume for good: from here on no session can be opened. While
// there is a session it is refused with EBUSY and that session's name in Data. Sealing a
// sealed volume changes nothing.
type Seal struct{}

// Kind implements Op.
func (*Seal) Kind() Kind { return KindSeal }

func (*Seal) code(*coder) {}

// Operate asks the coordinator to log a control operation: Seal, SetLimits or
// SetFeature. Only an operator may.
type Operate struct{ Op Op }

// Operable reports whether an operator may have an operation of this kind logged.
func (k Kind) Operable() bool {
	return k == KindSeal || k == KindSetLimits || k == KindSetFeature
}
