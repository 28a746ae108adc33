/** Curves over sizes, as a picture. */
export type Curve = { readonly name: string; readonly values: readonly number[] }

const width = 720
const height = 360
const left = 60
const right = 210
const top = 40
const bottom = 50
const colours = ['#2563eb', '#dc2626', '#059669', '#d97706', '#7c3aed', '#0891b2']

/** Each curve as times of its first value, over sizes on a logarithmic axis; `limit` is a line across. */
export function curvesSvg(title: string, sizes: readonly number[], curves: readonly Curve[], limit: number): string {
  const relative = curves.map(({ values }) => values.map((value) => value / values[0]!))
  const highest = Math.max(limit, ...relative.flat()) * 1.1
  const [first, last] = [Math.log(sizes[0]!), Math.log(sizes.at(-1)!)]
  const x = (size: number) => round(left + ((Math.log(size) - first) / (last - first)) * (width - left - right))
  const y = (value: number) => round(height - bottom - (value / highest) * (height - top - bottom))
  const line = (from: number, to: number, at: number, more = '') =>
    `<line x1="${from}" x2="${to}" y1="${at}" y2="${at}" ${more}/>`
  const parts = [
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    text(left, 22, title, 'font-weight="bold"'),
    line(left, width - right, y(0), 'stroke="#334155"'),
    ...ticks(highest).map(
      (at) => line(left, width - right, y(at), 'stroke="#e2e8f0"') + text(left - 8, y(at) + 4, `${at}×`, END),
    ),
    line(left, width - right, y(limit), 'stroke="#dc2626" stroke-dasharray="6 4"'),
    ...sizes.map((size) => text(x(size), height - bottom + 20, size.toLocaleString('en'), MIDDLE)),
    text((left + width - right) / 2, height - 8, 'rows of the table, and five events of each', MIDDLE),
    ...relative.flatMap((values, i) => {
      const colour = colours[i % colours.length]!
      const points = values.map((value, at) => [x(sizes[at]!), y(value)] as const)
      return [
        `<polyline points="${points.join(' ')}" fill="none" stroke="${colour}" stroke-width="2"/>`,
        ...points.map(([cx, cy]) => `<circle cx="${cx}" cy="${cy}" r="3" fill="${colour}"/>`),
        text(
          width - right + 16,
          top + 20 + i * 22,
          `${curves[i]!.name}: ${values.at(-1)!.toFixed(2)}×`,
          `fill="${colour}"`,
        ),
      ]
    }),
  ]
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">\n${parts.join('\n')}\n</svg>\n`
}

const END = 'text-anchor="end"'
const MIDDLE = 'text-anchor="middle"'

const text = (x: number, y: number, content: string, more = ''): string =>
  `<text x="${x}" y="${y}" ${more}>${content}</text>`

const ticks = (highest: number): number[] => {
  const step = highest > 4 ? 1 : highest > 2 ? 0.5 : 0.25
  return Array.from({ length: Math.floor(highest / step) }, (_, i) => (i + 1) * step)
}

const round = (value: number): number => Math.round(value * 10) / 10
