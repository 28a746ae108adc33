import { useEffect, useRef, useState } from 'react'
import UPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { useTheme } from '../../app/theme.ts'
import type { Form } from './question.ts'
import { type Chart, describe, roundedText } from './report.ts'
import styles from './reports.module.css'

type PlotProps = { readonly chart: Chart; readonly form: 'bars' | 'lines' | 'area'; readonly height: number }

/** Bars, lines or areas on a canvas. What the pointer is over stands in the legend; the table has all of it for everybody. */
export function Plot({ chart, form, height }: PlotProps) {
  const box = useRef<HTMLDivElement>(null)
  const [place, setPlace] = useState<number | null>(null)
  const theme = useTheme()
  const isDark = useDarkness()
  useEffect(() => {
    const element = box.current!
    const plot = new UPlot(optionsOf(element, chart, form, height, setPlace), dataOf(chart), element)
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }))
    observer.observe(element)
    return () => {
      observer.disconnect()
      plot.destroy()
    }
  }, [chart, form, height, theme, isDark])
  return (
    <>
      <div
        ref={box}
        className={styles.plot}
        // The colours on a canvas do not change with the medium.
        data-dark={theme === 'dark' || (theme === 'system' && isDark)}
        role="img"
        aria-label={describe(chart, form)}
        style={{ height }}
      />
      <div className={styles.legend}>
        <ul>
          {chart.series.map(({ name, values }, kind) => (
            <li key={`${kind} ${name}`}>
              <span className={styles.swatch} style={{ background: `var(--chart-${kind + 1})` }} aria-hidden="true" />
              <span>{name}</span>
              {place !== null && <strong>{roundedText(values[place])}</strong>}
            </li>
          ))}
        </ul>
        {place !== null && <span className={styles.place}>{chart.labels[place]}</span>}
      </div>
    </>
  )
}

const dataOf = ({ labels, series }: Chart): UPlot.AlignedData => [
  labels.map((_, place) => place),
  ...series.map(({ values }) => [...values]),
]

function optionsOf(
  element: HTMLElement,
  chart: Chart,
  form: PlotProps['form'],
  height: number,
  onPlace: (place: number | null) => void,
): UPlot.Options {
  const { labels, series } = chart
  const colour = coloursOf(element)
  const font = `11px ${getComputedStyle(element).fontFamily}`
  const axis = { stroke: colour('--ink-2'), font, ticks: { show: false }, grid: { stroke: colour('--line'), width: 1 } }
  const margin = form === 'bars' || labels.length < 2 ? 0.5 : 0
  return {
    width: element.clientWidth,
    height,
    // Room for half of the last label, which stands below the end of a line.
    padding: [8, margin === 0 ? 40 : 12, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { show: form !== 'bars' } },
    hooks: { setCursor: [({ cursor }) => onPlace(cursor.idx ?? null)] },
    scales: {
      x: { time: false, range: [-margin, Math.max(0, labels.length - 1) + margin] },
      y: { range: (_plot, low, high) => heightsOf(low, high, form) },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 30,
        space: 76,
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000],
        values: (_plot, splits) => splits.map((split) => shortened(labels[split] ?? '')),
      },
      { ...axis, size: 56, values: (_plot, splits) => splits.map((split) => compact.format(split)) },
    ],
    series: [
      {},
      ...series.map(({ name }, kind): UPlot.Series => {
        const stroke = colour(`--chart-${kind + 1}`)
        if (form === 'bars')
          return { label: name, stroke, fill: stroke, width: 0, paths: barsOf(kind, chart), points: { show: false } }
        const fill = form === 'area' ? { fill: translucent(stroke) } : {}
        return { label: name, stroke, ...fill, width: 2, points: { show: labels.length < 60, size: 6, fill: stroke } }
      }),
    ],
  }
}

/** The bars of a place stand beside each other, on four fifths of its width. */
function barsOf(kind: number, { labels, series }: Chart): UPlot.Series.PathBuilder {
  const width = 0.8 / series.length
  const left = labels.map((_, place) => place - 0.4 + kind * width)
  // Unit 1: values of the axis, whose places are one apart.
  return UPlot.paths.bars!({
    disp: { x0: { unit: 1, values: () => left }, size: { unit: 1, values: () => labels.map(() => width) } },
  })
}

/** Bars and areas stand on zero. */
function heightsOf(low: number | null, high: number | null, form: Form): UPlot.Range.MinMax {
  if (low === null || high === null) return [0, 1]
  const soft = form === 'lines' ? {} : { soft: 0, mode: 1 as const }
  const [from, to] = UPlot.rangeNum(low, high, { min: { pad: 0.1, ...soft }, max: { pad: 0.1, ...soft } })
  return [from, to]
}

const compact = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 2 })

const shortened = (label: string): string => (label.length > 13 ? `${label.slice(0, 12)}…` : label)

/** Tokens as colours that a canvas takes. */
function coloursOf(element: HTMLElement): (token: string) => string {
  return (token) => {
    const probe = document.createElement('span')
    probe.style.color = `var(${token})`
    element.append(probe)
    const { color } = getComputedStyle(probe)
    probe.remove()
    return color
  }
}

/** Of a computed colour, `rgb(1, 2, 3)`. */
const translucent = (colour: string): string => colour.replace('rgb(', 'rgba(').replace(')', ', 0.22)')

function useDarkness(): boolean {
  const [isDark, setDark] = useState(() => darkness.matches)
  useEffect(() => {
    const change = () => setDark(darkness.matches)
    darkness.addEventListener('change', change)
    return () => darkness.removeEventListener('change', change)
  }, [])
  return isDark
}

const darkness = matchMedia('(prefers-color-scheme: dark)')
