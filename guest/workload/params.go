package workload

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Param is something that can be set about a workload.
type Param struct {
	Name    string
	Default string
	Unit    string // "" for a choice or a switch
	Doc     string
	// Exactly one of these says what a value may be.
	Min, Max int64    // a number, when Max is not 0
	Choices  []string // one of these; "true" and "false" make a switch
	// List is set when it is several of these values, each once: "1+2+4".
	List bool
}

// listSeparator joins the values of a list. A comma ends a parameter.
const listSeparator = "+"

// onOff are the choices of a switch.
var onOff = []string{"true", "false"}

// Allowed says in words what a value may be.
func (p Param) Allowed() string {
	if p.List {
		return "one or more, joined by " + listSeparator + ", of " + strings.Join(p.Choices, ", ")
	}
	if len(p.Choices) > 0 {
		return "one of " + strings.Join(p.Choices, ", ")
	}
	return fmt.Sprintf("a number from %d to %d", p.Min, p.Max)
}

// canonical checks a value and returns the form that it is recorded in.
func (p Param) canonical(value string) (string, error) {
	if p.List {
		return p.canonicalList(value)
	}
	if len(p.Choices) > 0 {
		if !slices.Contains(p.Choices, value) {
			return "", fmt.Errorf("%q is not %s", value, p.Allowed())
		}
		return value, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < p.Min || n > p.Max {
		return "", fmt.Errorf("%q is not %s", value, p.Allowed())
	}
	return strconv.FormatInt(n, 10), nil
}

// canonicalList is canonical for a list of choices. The order is the user's.
func (p Param) canonicalList(value string) (string, error) {
	var seen []string
	for _, v := range strings.Split(value, listSeparator) {
		if !slices.Contains(p.Choices, v) {
			return "", fmt.Errorf("%q is not %s", value, p.Allowed())
		}
		if slices.Contains(seen, v) {
			return "", fmt.Errorf("%q has %s twice", value, v)
		}
		seen = append(seen, v)
	}
	return value, nil
}

// Params are a workload's parameters, every one of them set and valid. They come
// from Parse.
type Params struct {
	values map[string]string
}

// Map returns a copy, as the hello record has it.
func (p Params) Map() map[string]string {
	m := make(map[string]string, len(p.values))
	for k, v := range p.values {
		m[k] = v
	}
	return m
}

// Text returns a parameter. Asking for one that the workload does not declare
// is a mistake in the workload, and panics.
func (p Params) Text(name string) string {
	v, ok := p.values[name]
	if !ok {
		panic("workload: no parameter " + name)
	}
	return v
}

// Int returns a number; see Text.
func (p Params) Int(name string) int {
	n, err := strconv.Atoi(p.Text(name))
	if err != nil {
		panic("workload: parameter " + name + " is no number")
	}
	return n
}

// Ints returns the numbers of a list; see Text.
func (p Params) Ints(name string) (list []int) {
	for _, v := range strings.Split(p.Text(name), listSeparator) {
		n, err := strconv.Atoi(v)
		if err != nil {
			panic("workload: parameter " + name + " is no list of numbers")
		}
		list = append(list, n)
	}
	return list
}

// On returns a switch; see Text.
func (p Params) On(name string) bool { return p.Text(name) == "true" }

// ErrSpec is wrapped by every error of Parse: a user's mistake.
var ErrSpec = errors.New("workload specification")

// Parse reads name[,key=value...]. The parameters returned are complete: what
// the specification does not say has its default. Errors wrap ErrSpec, name the
// offending word, and the nearest one that would be valid.
func Parse(spec string) (Workload, Params, error) {
	words := strings.Split(spec, ",")
	w, err := find(words[0])
	if err != nil {
		return nil, Params{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	p := Params{values: map[string]string{}}
	for _, word := range words[1:] {
		if err := p.set(w, word); err != nil {
			return nil, Params{}, fmt.Errorf("%w: %s: %w", ErrSpec, w.Name(), err)
		}
	}
	for _, param := range w.Params() {
		if _, set := p.values[param.Name]; !set {
			p.values[param.Name] = param.Default
		}
	}
	return w, p, nil
}

// Spec returns the specification that Parse reads as w with p: all parameters,
// in the workload's order.
func Spec(w Workload, p Params) string {
	words := []string{w.Name()}
	for _, param := range w.Params() {
		words = append(words, param.Name+"="+p.values[param.Name])
	}
	return strings.Join(words, ",")
}

func find(name string) (Workload, error) {
	var names []string
	for _, w := range All() {
		if w.Name() == name {
			return w, nil
		}
		names = append(names, w.Name())
	}
	if name == "" {
		return nil, fmt.Errorf("it has no name (one of %s)", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("no workload %q%s", name, suggest(name, names))
}

func (p Params) set(w Workload, word string) error {
	key, value, ok := strings.Cut(word, "=")
	if !ok {
		return fmt.Errorf("%q is not key=value", word)
	}
	var names []string
	for _, param := range w.Params() {
		if param.Name != key {
			names = append(names, param.Name)
			continue
		}
		if _, twice := p.values[key]; twice {
			return fmt.Errorf("%s is set twice", key)
		}
		v, err := param.canonical(value)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		p.values[key] = v
		return nil
	}
	return fmt.Errorf("no parameter %q%s", key, suggest(key, names))
}

// suggest names the nearest of names, and all of them when none is near.
func suggest(got string, names []string) string {
	nearest, best := "", 1+len(got)/2
	for _, name := range names {
		if d := distance(got, name); d < best {
			nearest, best = name, d
		}
	}
	if nearest != "" {
		return fmt.Sprintf(" (did you mean %q?)", nearest)
	}
	return " (there are " + strings.Join(names, ", ") + ")"
}

// distance is the Levenshtein distance in bytes. Names are short and ASCII; what
// a user types is cut, so that nonsense costs nothing.
func distance(a, b string) int {
	a = a[:min(len(a), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
