import { Minus, Plus } from 'lucide-react'
import { type KeyboardEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from 'react'
import { Button, IconButton } from '../../ui/button.tsx'
import { type Action, type Editing, type FlowNode, handlesOf, type NodeState, nameOf, type Point } from './flow.ts'
import { kinds, titleOf } from './kinds.ts'
import { type Layout, layoutOf, nodeSize, portOf } from './layout.ts'
import type { Finding } from './workflow.ts'
import styles from './workflows.module.css'

export type GraphProps = {
  readonly state: Editing
  readonly dispatch: (action: Action) => void
  readonly mayEdit: boolean
  readonly findings: readonly Finding[]
  readonly states: ReadonlyMap<string, NodeState>
}

const scales = [0.5, 0.75, 1, 1.25, 1.5]
const nudge = 16
const leastPlace = 24
/** A pointer that moved less has clicked. */
const clickDistance = 4

/** The name of a node for screen readers, with its state and its faults. */
export function spoken(node: FlowNode, { findings, states }: Pick<GraphProps, 'findings' | 'states'>): string {
  const problems = findings.filter(({ nodeId }) => nodeId === node.id).length
  const words = [`${nameOf(node)} ${titleOf(node.type)}`, states.get(node.id), problems > 0 && `${problems} to fix`]
  return words.filter((word) => word).join(', ')
}

/** Nodes and edges, moved and connected by pointer or by keys. */
export function Canvas(props: GraphProps) {
  const { state, dispatch, mayEdit } = props
  const layout = useMemo(() => layoutOf(state.flow), [state.flow])
  const [scale, setScale] = useState(1)
  const [aim, setAim] = useState<Point>()
  const surface = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (state.from === undefined) setAim(undefined)
  }, [state.from])
  const zoom = (by: -1 | 1) => setScale(scales[scales.indexOf(scale) + by] ?? scale)
  const pointAt = ({ clientX, clientY }: { readonly clientX: number; readonly clientY: number }): Point => {
    const { left, top } = surface.current!.getBoundingClientRect()
    return { x: (clientX - left) / scale, y: (clientY - top) / scale }
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && state.from !== undefined) dispatch({ do: 'leave' })
  }
  const source = state.flow.nodes.find(({ id }) => id === state.from?.source)
  return (
    <figure className={styles.figure}>
      <figcaption className={styles.caption}>
        <span role="status">
          {state.refusal ??
            (source === undefined
              ? `${state.flow.nodes.length} ${state.flow.nodes.length === 1 ? 'node' : 'nodes'}`
              : `Choose the node that follows ${nameOf(source)}. Esc leaves it.`)}
        </span>
        <IconButton size="s" label="Smaller" onClick={() => zoom(-1)}>
          <Minus aria-hidden="true" />
        </IconButton>
        <IconButton size="s" label="Larger" onClick={() => zoom(1)}>
          <Plus aria-hidden="true" />
        </IconButton>
        {mayEdit && (
          <Button size="s" kind="ghost" onClick={() => dispatch({ do: 'arrange' })}>
            Arrange
          </Button>
        )}
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by the keyboard */}
      <section className={styles.canvas} aria-label="Canvas" tabIndex={0} onKeyDown={onKeyDown}>
        <div style={{ width: layout.width * scale, height: layout.height * scale }}>
          <div
            ref={surface}
            className={styles.surface}
            style={{ width: layout.width, height: layout.height, transform: `scale(${scale})` }}
            onPointerMove={(event) => state.from !== undefined && setAim(pointAt(event))}
          >
            <Lines layout={layout} state={state} aim={aim} />
            {state.flow.nodes.map((node) => (
              <Node key={node.id} {...props} node={node} layout={layout} scale={scale} />
            ))}
          </div>
        </div>
      </section>
    </figure>
  )
}

type LinesProps = { readonly layout: Layout; readonly state: Editing; readonly aim: Point | undefined }

function Lines({ layout, state: { flow, selected, from }, aim }: LinesProps) {
  const source = flow.nodes.find(({ id }) => id === from?.source)
  const port = source && portOf(layout.places.get(source.id)!, source.type, from!.handle)
  return (
    <svg className={styles.lines} width={layout.width} height={layout.height} aria-hidden="true">
      <defs>
        <marker id="flow-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M 0 0 L 8 4 L 0 8 z" className={styles.tip} />
        </marker>
      </defs>
      {layout.lines.map(({ edge, handle, path, middle }) => (
        <g key={edge.id} data-active={edge.source === selected || edge.target === selected}>
          <path className={styles.line} d={path} markerEnd="url(#flow-tip)" />
          {handle !== 'done' && (
            <text className={styles.handle} x={middle.x} y={middle.y - 5} textAnchor="middle">
              {handle}
            </text>
          )}
        </g>
      ))}
      {port !== undefined && aim !== undefined && (
        <path className={styles.aim} d={`M ${port.x} ${port.y} L ${aim.x} ${aim.y}`} />
      )}
    </svg>
  )
}

type NodeProps = GraphProps & { readonly node: FlowNode; readonly layout: Layout; readonly scale: number }

function Node({ node, layout, scale, ...props }: NodeProps) {
  const { state, dispatch, mayEdit, findings, states } = props
  const place = layout.places.get(node.id)!
  const drag = useDrag({ node, layout, scale, dispatch })
  const choose = () => {
    if (drag.takeMoved()) return
    const { from } = state
    if (from === undefined) return dispatch({ do: 'select', id: node.id })
    dispatch({ do: 'connect', ...from, target: node.id })
  }
  const own = findings.filter(({ nodeId }) => nodeId === node.id)
  const mark = own.some(({ isWarning }) => !isWarning) ? 'error' : own.length > 0 ? 'warning' : undefined
  const keys = {
    ArrowLeft: { x: -nudge, y: 0 },
    ArrowRight: { x: nudge, y: 0 },
    ArrowUp: { x: 0, y: -nudge },
    ArrowDown: { x: 0, y: nudge },
  }
  const onKeyDown = (event: KeyboardEvent) => {
    if (!mayEdit || event.ctrlKey || event.metaKey || event.altKey) return
    const by = keys[event.key as keyof typeof keys]
    if (by !== undefined) {
      event.preventDefault()
      dispatch({ do: 'move', id: node.id, to: inside({ x: place.x + by.x, y: place.y + by.y }), places: layout.places })
    } else if (event.key === 'Delete') dispatch({ do: 'remove', id: node.id })
  }
  return (
    <div
      className={styles.node}
      style={{ left: place.x, top: place.y, width: nodeSize.width, height: nodeSize.height }}
      data-node={node.id}
    >
      <button
        type="button"
        className={styles.face}
        aria-pressed={state.selected === node.id}
        aria-label={spoken(node, { findings, states })}
        data-state={states.get(node.id)}
        data-mark={mark}
        title={own.map(({ message }) => message).join('\n') || kinds[node.type]?.about}
        onClick={choose}
        onKeyDown={onKeyDown}
        {...(mayEdit && drag.handlers)}
      >
        <strong>{nameOf(node)} </strong>
        <small>{titleOf(node.type)}</small>
      </button>
      {mayEdit &&
        handlesOf(node.type).map((handle) => <Port key={handle} {...{ node, handle, place, state, dispatch }} />)}
    </div>
  )
}

const inside = ({ x, y }: Point): Point => ({ x: Math.max(leastPlace, x), y: Math.max(leastPlace, y) })

type DragProps = Pick<NodeProps, 'node' | 'layout' | 'scale' | 'dispatch'>

/** Moves a node by the pointer that has taken it. */
function useDrag({ node, layout, scale, dispatch }: DragProps) {
  const held = useRef<{ readonly x: number; readonly y: number; readonly layout: Layout } | undefined>(undefined)
  const moved = useRef(false)
  return {
    /** Whether the click that comes now ends a move. */
    takeMoved() {
      const hasMoved = moved.current
      moved.current = false
      return hasMoved
    },
    handlers: {
      onPointerDown(event: PointerEvent<HTMLElement>) {
        moved.current = false
        if (event.button !== 0) return
        held.current = { x: event.clientX, y: event.clientY, layout }
        event.currentTarget.setPointerCapture(event.pointerId)
      },
      onPointerMove({ clientX, clientY }: PointerEvent) {
        if (held.current === undefined) return
        const { x, y, layout: before } = held.current
        if (!moved.current && Math.hypot(clientX - x, clientY - y) < clickDistance) return
        moved.current = true
        const from = before.places.get(node.id)!
        const to = { x: Math.round(from.x + (clientX - x) / scale), y: Math.round(from.y + (clientY - y) / scale) }
        dispatch({ do: 'move', id: node.id, to: inside(to), places: before.places })
      },
      onPointerUp() {
        held.current = undefined
        if (moved.current) dispatch({ do: 'rest' })
      },
      onPointerCancel() {
        held.current = undefined
      },
    },
  }
}

type PortProps = {
  readonly node: FlowNode
  readonly handle: string
  readonly place: Point
  readonly state: Editing
  readonly dispatch: (action: Action) => void
}

/** Where an edge begins: pressed, and let go over another node; or pressed, and the other node chosen. */
function Port({ node, handle, place, state, dispatch }: PortProps) {
  const port = portOf(place, node.type, handle)
  const isOn = state.from?.source === node.id && state.from.handle === handle
  const begin = () => dispatch(isOn ? { do: 'leave' } : { do: 'begin', source: node.id, handle })
  const onPointerDown = (event: PointerEvent) => {
    if (event.button !== 0) return
    begin()
    if (isOn) return
    const onUp = ({ clientX, clientY }: globalThis.PointerEvent) => {
      const target = document.elementFromPoint(clientX, clientY)?.closest('[data-node]')?.getAttribute('data-node')
      if (target === node.id) return
      if (target == null) dispatch({ do: 'leave' })
      else dispatch({ do: 'connect', source: node.id, handle, target })
    }
    window.addEventListener('pointerup', onUp, { once: true })
  }
  return (
    <button
      type="button"
      className={styles.port}
      style={{ left: port.x - place.x, top: port.y - place.y }}
      aria-label={`Connect ${nameOf(node)}${handle === 'done' ? '' : ` from ${handle}`}`}
      aria-pressed={isOn}
      title={handle}
      onPointerDown={onPointerDown}
      // The pointer has begun already; a click without one comes from the keyboard.
      onClick={(event) => event.detail === 0 && begin()}
    />
  )
}
