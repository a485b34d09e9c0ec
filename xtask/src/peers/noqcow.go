// Stands in for the engine's binding to a C library that reads qcow2: images of that kind are not what it
// is built for here, and opening one says so.
package qcow

import "errors"

var errNotBuilt = errors.New("built without libqcow")

type Qcow struct{}

func Open(string) (*Qcow, error) { return nil, errNotBuilt }

func (*Qcow) WriteAt([]byte, int64) (int, error) { return 0, errNotBuilt }

func (*Qcow) ReadAt([]byte, int64) (int, error) { return 0, errNotBuilt }

func (*Qcow) UnmapAt(uint32, int64) (int, error) { return 0, errNotBuilt }

func (*Qcow) Close() error { return errNotBuilt }

func (Qcow) Size() (int64, error) { return 0, errNotBuilt }

func (*Qcow) Fd() uintptr { return 0 }
