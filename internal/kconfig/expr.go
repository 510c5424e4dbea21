package kconfig

import (
	"slices"
	"strings"
)

// evaluator decides an expression of a `depends on`, as in
// "NET && (INET || !IPV6=m)". Values above n count as true.
type evaluator struct {
	final *Config
	text  string
	seen  []string // "NET=n" for each symbol read, once
	fail  bool     // it has something that is not understood: a macro, a comparison of strings
	depth int
}

// maxDepth bounds nested parentheses.
const maxDepth = 50

// eval returns the expression's truth; known is false if it was not understood.
func (e *evaluator) eval() (ok, known bool) {
	ok = e.or()
	e.blanks()
	return ok, !e.fail && e.text == ""
}

func (e *evaluator) blanks() { e.text = strings.TrimLeft(e.text, " \t") }

func (e *evaluator) accept(token string) bool {
	e.blanks()
	rest, ok := strings.CutPrefix(e.text, token)
	if ok {
		e.text = rest
	}
	return ok
}

func (e *evaluator) or() bool {
	v := e.and()
	for e.accept("||") {
		right := e.and()
		v = v || right
	}
	return v
}

func (e *evaluator) and() bool {
	v := e.term()
	for e.accept("&&") {
		right := e.term()
		v = v && right
	}
	return v
}

func (e *evaluator) term() bool {
	if e.depth++; e.depth > maxDepth {
		e.fail, e.text = true, ""
		return false
	}
	defer func() { e.depth-- }()
	switch {
	case e.fail:
		return false
	case e.accept("!"):
		return !e.term()
	case e.accept("("):
		v := e.or()
		if !e.accept(")") {
			e.fail = true
		}
		return v
	}
	left := e.value()
	switch {
	case e.accept("!="):
		return left != e.value()
	case e.accept("="):
		return left == e.value()
	}
	return left != No
}

// value reads a symbol or a constant and returns its value.
func (e *evaluator) value() string {
	e.blanks()
	end := strings.IndexFunc(e.text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if end < 0 {
		end = len(e.text)
	}
	name := e.text[:end]
	e.text = e.text[end:]
	switch name {
	case "":
		e.fail = true
		return No
	case "y", "m", No:
		return name
	}
	v, _ := e.final.Get(name)
	if note := name + "=" + v; !slices.Contains(e.seen, note) {
		e.seen = append(e.seen, note)
	}
	return v
}
