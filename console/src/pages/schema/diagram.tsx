import { Link } from '@tanstack/react-router'
import { Minus, Plus } from 'lucide-react'
import { useMemo, useState } from 'react'
import { Button, IconButton } from '../../ui/button.tsx'
import type { Definition } from './definitions.ts'
import { type Box, boxWidth, headHeight, type Line, layoutOf, rowHeight } from './layout.ts'
import styles from './schema.module.css'

type DiagramProps = { readonly all: readonly Definition[]; readonly shown: readonly Definition[] }

const steps = [0.25, 0.5, 0.75, 1, 1.5, 2]

/** Collections as boxes and relations as lines. Each box is a link, in the order of reading. */
export function Diagram({ all, shown }: DiagramProps) {
  const layout = useMemo(() => layoutOf(all, shown), [all, shown])
  const [scale, setScale] = useState<number>()
  const [active, setActive] = useState<string>()
  const labels = new Map(all.map(({ collectionName, schema }) => [collectionName, schema.name ?? collectionName]))
  const ordered = [...layout.boxes].sort((a, b) => a.x - b.x || a.y - b.y)
  const step = (by: -1 | 1) => {
    const now = scale ?? 1
    const next = by > 0 ? steps.find((one) => one > now) : steps.findLast((one) => one < now)
    if (next !== undefined) setScale(next)
  }
  return (
    <figure className={styles.figure}>
      <figcaption className={styles.tools}>
        <span>
          {layout.boxes.length} {layout.boxes.length === 1 ? 'collection' : 'collections'}, {layout.lines.length}{' '}
          {layout.lines.length === 1 ? 'link' : 'links'}. A line leads from the key to what it names; both ways where
          there is a junction.
        </span>
        <IconButton size="s" label="Smaller" onClick={() => step(-1)}>
          <Minus aria-hidden="true" />
        </IconButton>
        <IconButton size="s" label="Larger" onClick={() => step(1)}>
          <Plus aria-hidden="true" />
        </IconButton>
        <Button size="s" kind="ghost" aria-pressed={scale === undefined} onClick={() => setScale(undefined)}>
          Fit
        </Button>
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard */}
      <section className={styles.canvas} aria-label="Diagram" tabIndex={0}>
        {/* biome-ignore lint/a11y/useSemanticElements: no fieldset is drawn in SVG */}
        <svg
          viewBox={`0 0 ${layout.width} ${layout.height}`}
          width={layout.width * (scale ?? 1)}
          height={scale === undefined ? undefined : layout.height * scale}
          data-fit={scale === undefined}
          role="group"
          aria-label="Collections and relations"
        >
          <Shapes />
          {layout.lines.map((line) => (
            <Connection
              key={`${line.from} ${line.to} ${String(line.isMany)}`}
              line={line}
              isActive={active === line.from || active === line.to}
            />
          ))}
          {ordered.map((box) => (
            <Node
              key={box.name}
              box={box}
              label={labels.get(box.name) ?? box.name}
              targets={targetsOf(box.name, layout.lines)}
              onActive={setActive}
            />
          ))}
        </svg>
      </section>
    </figure>
  )
}

const targetsOf = (name: string, lines: readonly Line[]): readonly string[] =>
  lines.flatMap(({ from, to, isMany }) => (from === name ? [to] : to === name && isMany ? [from] : []))

function Shapes() {
  return (
    <defs>
      <clipPath id="inside">
        <rect width={boxWidth - 8} height={1000} />
      </clipPath>
      <marker
        id="arrow"
        viewBox="0 0 8 8"
        refX="7"
        refY="4"
        markerWidth="7"
        markerHeight="7"
        orient="auto-start-reverse"
      >
        <path d="M 0 0 L 8 4 L 0 8 z" className={styles.tip} />
      </marker>
    </defs>
  )
}

type ConnectionProps = { readonly line: Line & { readonly path: string }; readonly isActive: boolean }

function Connection({ line: { from, to, names, isMany, path }, isActive }: ConnectionProps) {
  return (
    <path
      className={styles.line}
      data-active={isActive}
      d={path}
      markerEnd="url(#arrow)"
      markerStart={isMany ? 'url(#arrow)' : undefined}
    >
      <title>{`${from} ${isMany ? '↔' : '→'} ${to}: ${names.join(', ')}`}</title>
    </path>
  )
}

type NodeProps = {
  readonly box: Box
  readonly label: string
  readonly targets: readonly string[]
  readonly onActive: (name: string | undefined) => void
}

function Node({ box: { name, x, y, height, rows, more }, label, targets, onActive }: NodeProps) {
  return (
    <Link
      to="/schema/$collection"
      params={{ collection: name }}
      className={styles.node}
      aria-description={targets.length === 0 ? undefined : `leads to ${targets.join(', ')}`}
      onMouseEnter={() => onActive(name)}
      onMouseLeave={() => onActive(undefined)}
      onFocus={() => onActive(name)}
      onBlur={() => onActive(undefined)}
    >
      <g transform={`translate(${x} ${y})`}>
        <rect className={styles.box} width={boxWidth} height={height} rx={8} />
        <text className={styles.head} x={12} y={20} clipPath="url(#inside)">
          {cut(label, 24)}
        </text>
        <line className={styles.rule} x1={0} x2={boxWidth} y1={headHeight} y2={headHeight} />
        {rows.map((row, place) => (
          <g key={row.name} transform={`translate(0 ${headHeight + place * rowHeight + 15})`}>
            <text className={styles.row} data-leads={row.leads} x={12}>
              {cut(row.name, 18)}
            </text>
            <text className={styles.type} x={boxWidth - 12} textAnchor="end">
              {cut(row.type, 12)}
            </text>
          </g>
        ))}
        {more > 0 && (
          <text className={styles.type} x={12} y={headHeight + rows.length * rowHeight + 15}>
            and {more} more
          </text>
        )}
      </g>
    </Link>
  )
}

const cut = (text: string, length: number): string => (text.length > length ? `${text.slice(0, length - 1)}…` : text)
