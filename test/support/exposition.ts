/** The samples of a text in the format of Prometheus, by `name{label="value",…}`; throws at a line that is no such thing. */
export function samplesOf(text: string): ReadonlyMap<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => {
      const [, series, value] = sample.exec(line) ?? []
      if (series === undefined || value === undefined) throw new Error(`not a sample: ${line}`)
      return [series, Number(value)]
    }),
  )
}

/** Prometheus reads `NaN` in any case: so says a gauge of which nothing has been measured yet. */
const sample = /^([a-z_][a-z0-9_]*(?:\{(?:[a-z_]+="[^"\n]*",?)*\})?) ([-+]?[0-9][0-9.e+-]*|NaN|Nan|[-+]Inf)$/
