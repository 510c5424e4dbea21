package app

import (
	"strings"

	"github.com/kbisect/kbisect/guest/workload"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/stats"
)

// exactTests are the statistics behind every decision.
var exactTests = stats.Exact{}

// workloadName is the part of a specification before its parameters.
func workloadName(spec string) string {
	name, _, _ := strings.Cut(spec, ",")
	return name
}

// cmdlineOf returns the kernel parameters that a workload needs.
func cmdlineOf(spec string) []string {
	w, _, err := workload.Parse(spec)
	if err != nil {
		return nil
	}
	return workload.Cmdline(w)
}

// parseWorkload checks a specification and returns it with its metrics.
func parseWorkload(spec string) (string, []measure.Def, error) {
	w, params, err := workload.Parse(spec)
	if err != nil {
		return "", nil, Usagef("kbisect list workloads shows names, parameters and bounds", "%v", err)
	}
	var defs []measure.Def
	for _, m := range workload.MetricsFor(w, params) {
		defs = append(defs, measure.Def{Name: m.Name, Unit: m.Unit, Better: m.Better, Dist: m.Dist, About: m.Doc,
			Exposure: m.Exposure, Among: m.Among})
	}
	return spec, defs, nil
}
