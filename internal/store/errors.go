package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// What can be wrong with a state folder or a look-up; test with errors.Is.
var (
	ErrFull       = errors.New("no space left on the disk")
	ErrUnwritable = errors.New("not writable")
	ErrCorrupt    = errors.New("the database is damaged")
	ErrNewer      = errors.New("the database was written by a newer kbisect")
	ErrBusy       = errors.New("another process holds the database")
	ErrNotFound   = errors.New("no such run")
	ErrAmbiguous  = errors.New("more than one run begins so")
	ErrRunning    = errors.New("the run is still going on")
)

// Error is a failure of the state folder. It wraps both its Kind (one of the
// Err values, nil when it is none of them) and the cause.
type Error struct {
	Op   string // "append outcome"
	Path string // the file or folder it is about
	Kind error
	Err  error
}

func (e *Error) Error() string {
	msg := fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err)
	if e.Kind != nil && !errors.Is(e.Err, e.Kind) {
		msg = fmt.Sprintf("%s %s: %v: %v", e.Op, e.Path, e.Kind, e.Err)
	}
	if h := e.Hint(); h != "" {
		msg += "; " + h
	}
	return msg
}

// Unwrap gives both the kind and the cause to errors.Is and errors.As.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// Hint says what a person can do about it, "" if nothing is known.
func (e *Error) Hint() string {
	switch e.Kind {
	case ErrFull:
		return "free some space there, or set XDG_STATE_HOME to a folder on another disk"
	case ErrUnwritable:
		return "make it writable, or set XDG_STATE_HOME to a folder that is"
	case ErrCorrupt:
		return "move it away and run again (the results in runs/ stay readable)"
	case ErrNewer:
		return "use that version, or set XDG_STATE_HOME to another folder"
	case ErrBusy:
		return "wait for the other kbisect, or look whether the disk is stuck"
	}
	return ""
}

// wrap makes an *Error of err, with its kind found out. An *Error inside stays
// what it is.
func wrap(op, path string, err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	k := kind(err)
	if k == nil && full(path) {
		k = ErrFull // SQLite says only "disk I/O error" when its index cannot grow
	}
	return &Error{Op: op, Path: path, Kind: k, Err: err}
}

// kind classes what SQLite or the file system said.
func kind(err error) error {
	var se *sqlite.Error
	if errors.As(err, &se) {
		switch se.Code() & 0xff { // the low byte is the primary code
		case sqlite3.SQLITE_FULL:
			return ErrFull
		case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
			return ErrUnwritable
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return ErrCorrupt
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			return ErrBusy
		}
		return nil
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return ErrFull
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return ErrUnwritable
	}
	return nil
}

// full reports whether the file system of path has no room for another page.
func full(path string) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(filepath.Dir(path), &st) == nil && st.Bavail*uint64(st.Bsize) < 64<<10
}
