import { ArrowDown, ArrowUp } from 'lucide-react'
import { type KeyboardEvent, memo, type PointerEvent, type ReactNode, useEffect, useId, useRef, useState } from 'react'
import styles from './grid.module.css'
import { useGridScroll } from './grid-scroll.ts'

type GridColumn<Row> = {
  readonly key: string
  readonly title: string
  readonly icon?: ReactNode
  readonly width: number
  readonly isNumber?: boolean
  readonly sorted?: 'ascending' | 'descending' | undefined
  readonly canSort?: boolean
  readonly cell: (row: Row) => ReactNode
}

/** A cell, by its row and column. */
export type Place = { readonly row: number; readonly column: number }

/** The active cell, and how far the grid is scrolled. */
export type GridPlace = Place & { readonly position: number }

type RowLooks = { readonly isSelected: boolean; readonly isRemoved: boolean; readonly isChanged: boolean }

type GridProps<Row> = {
  readonly label: string
  readonly columns: readonly GridColumn<Row>[]
  readonly count: number
  /** Undefined while it is read. */
  readonly rowAt: (index: number) => Row | undefined
  readonly keyOf: (row: Row) => string
  /** The rows that are in view have changed. */
  readonly onView: (first: number, last: number) => void
  readonly looksOf: (row: Row) => RowLooks
  readonly onSort: (key: string) => void
  readonly onResize: (key: string, width: number) => void
  readonly onSelect: (row: Row, index: number, how: 'toggle' | 'range') => void
  readonly onSelectAll: () => void
  /** How many rows are selected. */
  readonly selection: 'none' | 'some' | 'all'
  readonly onOpen: (row: Row) => void
  /** A link to the row, for the pointer; `Enter` opens it by the keyboard. */
  readonly openerOf: (row: Row) => ReactNode
  readonly onDelete: () => void
  /** The cell that is edited, with its control. */
  readonly editing: Place | undefined
  readonly onEdit: (place: Place | undefined) => void
  readonly editor: (row: Row, key: string) => ReactNode
  /** Where it begins. */
  readonly begin: GridPlace | undefined
  readonly onPlace: (place: GridPlace) => void
  /** Changes when what is shown has changed. */
  readonly version: number
}

const rowHeight = 34
const beyond = 8
const anchored = 500
/** The cell before the first column: the box that selects a row, and the link that opens it. */
const besideWidth = 68

/**
 * Any number of rows, of which those in view are there: a table could not hold the others. Cells are walked by the keyboard, as in
 * a spreadsheet.
 */
export function Grid<Row>(props: GridProps<Row>) {
  const { columns, count, rowAt, onView, onPlace, editing, begin, version } = props
  const frame = useRef<HTMLDivElement>(null)
  const id = useId()
  const [active, setActive] = useState<Place>(begin ?? { row: 0, column: 0 })
  const scroll = useGridScroll({
    frame,
    count,
    rowHeight,
    headHeight: rowHeight,
    ...(begin && { position: begin.position }),
  })
  const first = Math.max(0, scroll.first - beyond)
  const last = Math.min(count - 1, scroll.first + scroll.visible + beyond)
  useEffect(() => onView(first, last), [first, last, onView])
  useEffect(
    () => onPlace({ row: active.row, column: active.column, position: scroll.position }),
    [active, scroll.position, version, onPlace],
  )
  // Rows stand where they are from an anchor that seldom moves: scrolling moves none of them, and adds few.
  const anchor = Math.floor(first / anchored) * anchored
  const editedRow = useEditedRow(props)
  const edited = useRef(false)
  useEffect(() => {
    // Where an editor was, the keyboard goes on.
    if (edited.current && editing === undefined) frame.current?.focus()
    edited.current = editing !== undefined
  }, [editing])
  const go = (place: Place) => {
    const next = {
      row: Math.max(0, Math.min(count - 1, place.row)),
      column: Math.max(0, Math.min(columns.length - 1, place.column)),
    }
    setActive(next)
    // A control that had the keyboard would take the next Enter for itself.
    frame.current?.focus({ preventScroll: true })
    scroll.scrollTo(next.row)
    showColumn(frame.current, columns, next.column)
  }
  const activate = (place: Place) => {
    setActive(place)
    if (editing === undefined) frame.current?.focus({ preventScroll: true })
  }
  const onKeyDown = (event: KeyboardEvent) => {
    // An editor has keys of its own.
    if (editing !== undefined) return
    const { isControl, isHead } = placeOfKey(event)
    if (isControl && (event.key === 'Enter' || event.key === ' ')) return
    const row = rowAt(active.row)
    const move = movements(event, active, scroll.visible - 2, count, columns.length)
    if (move !== undefined) {
      event.preventDefault()
      if (event.shiftKey && row !== undefined) props.onSelect(row, active.row, 'range')
      return go(move)
    }
    if (row === undefined || isHead) return
    const control = event.ctrlKey || event.metaKey
    const actions: Readonly<Record<string, () => void>> = {
      Enter: () => props.onOpen(row),
      F2: () => props.onEdit(active),
      ' ': () => props.onSelect(row, active.row, 'toggle'),
      Delete: props.onDelete,
      ...(control && { a: props.onSelectAll, c: () => copyCell(frame.current, id, active) }),
    }
    const action = actions[event.key]
    if (action === undefined) return
    event.preventDefault()
    action()
  }
  const inView = Array.from({ length: Math.max(0, last - first + 1) }, (_, place) => first + place)
  const rows = withEdited(inView, editing?.row)
  // Where the bar stands for a part of the rows, one far away has no place: it waits just beyond those in view.
  const isScaled = scroll.height < count * rowHeight
  const placeOf = (index: number) => (isScaled ? Math.max(first - 1, Math.min(last + 1, index)) : index)
  return (
    <div
      ref={frame}
      className={styles.frame}
      role="grid"
      aria-label={props.label}
      aria-rowcount={count + 1}
      aria-colcount={columns.length + 1}
      aria-multiselectable="true"
      aria-activedescendant={rowAt(active.row) === undefined ? undefined : cellId(id, active)}
      tabIndex={0}
      onKeyDown={onKeyDown}
      // What is typed is seen.
      onInput={() => editing !== undefined && scroll.scrollTo(editing.row)}
    >
      <Head {...props} />
      <div className={styles.space} style={{ height: scroll.height }} role="rowgroup">
        <div
          className={styles.rows}
          role="presentation"
          style={{ transform: `translateY(${scroll.top - (scroll.first - anchor) * rowHeight}px)` }}
        >
          {rows.map((index) => {
            const row = index === editing?.row ? editedRow : rowAt(index)
            return row === undefined ? (
              <Waiting key={index} index={index} top={(index - anchor) * rowHeight} columns={columns} />
            ) : (
              <GridRow
                key={index}
                id={id}
                index={index}
                top={(placeOf(index) - anchor) * rowHeight}
                row={row}
                columns={columns}
                {...props.looksOf(row)}
                activeColumn={active.row === index ? active.column : -1}
                editingColumn={editing?.row === index ? editing.column : -1}
                onActivate={activate}
                handlers={props}
              />
            )
          })}
        </div>
      </div>
    </div>
  )
}

/** The row that is edited, as it is known: it stays when it is scrolled so far away that it is forgotten. */
function useEditedRow<Row>({ editing, rowAt, keyOf }: GridProps<Row>): Row | undefined {
  const held = useRef<Row>(undefined)
  const now = editing === undefined ? undefined : rowAt(editing.row)
  const isAnother = held.current !== undefined && now !== undefined && keyOf(now) !== keyOf(held.current)
  if (editing === undefined) held.current = undefined
  else if (now !== undefined && !isAnother) held.current = now
  return held.current
}

/** In their order, so that none of them moves in the document: an editor would lose the keyboard. */
function withEdited(inView: readonly number[], edited: number | undefined): readonly number[] {
  if (edited === undefined || inView.includes(edited)) return inView
  return edited < (inView[0] ?? 0) ? [edited, ...inView] : [...inView, edited]
}

const cellId = (id: string, { row, column }: Place) => `${id}-${row}-${column}`

/** Whose key it is: links, buttons and boxes have some of their own, and nothing in the head is a row. */
function placeOfKey({ target, currentTarget }: KeyboardEvent) {
  const own = target === currentTarget || !(target instanceof Element) ? undefined : target
  return {
    isControl: own !== undefined && own.closest('a, button, input') !== null,
    isHead: own !== undefined && own.closest('[role=columnheader]') !== null,
  }
}

/** Where a key leads. */
function movements(
  event: KeyboardEvent,
  { row, column }: Place,
  screen: number,
  count: number,
  width: number,
): Place | undefined {
  const control = event.ctrlKey || event.metaKey
  const places: Readonly<Record<string, Place>> = {
    ArrowDown: { row: row + 1, column },
    ArrowUp: { row: row - 1, column },
    ArrowRight: { row, column: column + 1 },
    ArrowLeft: { row, column: column - 1 },
    PageDown: { row: row + screen, column },
    PageUp: { row: row - screen, column },
    Home: control ? { row: 0, column: 0 } : { row, column: 0 },
    End: control ? { row: count - 1, column: width - 1 } : { row, column: width - 1 },
  }
  return places[event.key]
}

function showColumn<Row>(frame: HTMLElement | null, columns: readonly GridColumn<Row>[], column: number): void {
  if (frame === null) return
  const left = columns.slice(0, column).reduce((sum, { width }) => sum + width, 0)
  const right = left + (columns[column]?.width ?? 0) + besideWidth
  if (left < frame.scrollLeft) frame.scrollLeft = left
  else if (right > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = right - frame.clientWidth
}

function copyCell(frame: HTMLElement | null, id: string, place: Place): void {
  const cell = frame?.querySelector(`#${CSS.escape(cellId(id, place))}`)
  void navigator.clipboard.writeText(cell?.textContent ?? '')
}

function PlainHead<Row>({ columns, onSort, onResize, onSelectAll, selection }: GridProps<Row>) {
  return (
    <div className={styles.head} role="row" aria-rowindex={1} tabIndex={-1}>
      <div className={styles.check} role="columnheader" aria-colindex={1} tabIndex={-1}>
        <label>
          <input
            type="checkbox"
            tabIndex={-1}
            ref={(box) => {
              if (box !== null) box.indeterminate = selection === 'some'
            }}
            checked={selection === 'all'}
            onChange={({ target }) => {
              // The browser takes the mark away by itself, also where some stay selected.
              target.indeterminate = selection === 'some'
              onSelectAll()
            }}
            aria-label="Select all loaded rows"
          />
        </label>
      </div>
      {columns.map(({ key, title, icon, width, isNumber, sorted, canSort = true }, place) => (
        <div
          key={key}
          className={styles.headCell}
          role="columnheader"
          tabIndex={-1}
          aria-colindex={place + 2}
          aria-sort={sorted ?? 'none'}
          data-number={isNumber}
          style={{ width }}
        >
          <button type="button" tabIndex={-1} disabled={!canSort} onClick={() => onSort(key)} title={title}>
            {icon}
            <span className={styles.headName}>{title}</span>
            {sorted === 'ascending' && <ArrowUp aria-hidden="true" />}
            {sorted === 'descending' && <ArrowDown aria-hidden="true" />}
          </button>
          <button
            type="button"
            className={styles.resizer}
            tabIndex={-1}
            aria-label={`Width of ${title}`}
            onPointerDown={(event) => resize(event, width, (next) => onResize(key, next))}
          />
        </div>
      ))}
    </div>
  )
}

const Head = memo(
  PlainHead,
  (before, after) =>
    before.columns === after.columns &&
    before.selection === after.selection &&
    before.onSelectAll === after.onSelectAll,
) as typeof PlainHead

/** Follows the pointer until it is let go. */
function resize(event: PointerEvent<HTMLElement>, width: number, onWidth: (width: number) => void): void {
  event.preventDefault()
  const { currentTarget: handle, clientX: begin, pointerId } = event
  handle.setPointerCapture(pointerId)
  const follow = ({ clientX }: globalThis.PointerEvent) => onWidth(Math.max(60, Math.round(width + clientX - begin)))
  handle.addEventListener('pointermove', follow)
  handle.addEventListener('lostpointercapture', () => handle.removeEventListener('pointermove', follow), { once: true })
}

type RowProps<Row> = RowLooks & {
  readonly id: string
  readonly index: number
  readonly top: number
  readonly row: Row
  readonly columns: readonly GridColumn<Row>[]
  readonly activeColumn: number
  readonly editingColumn: number
  readonly onActivate: (place: Place) => void
  readonly handlers: Pick<GridProps<Row>, 'onSelect' | 'onEdit' | 'onOpen' | 'openerOf' | 'editor'>
}

function PlainRow<Row>({
  id,
  index,
  top,
  row,
  columns,
  activeColumn,
  editingColumn,
  onActivate,
  handlers,
  ...looks
}: RowProps<Row>) {
  const select = (how: 'toggle' | 'range') => handlers.onSelect(row, index, how)
  return (
    <div
      className={styles.row}
      style={{ top }}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={looks.isSelected}
      data-removed={looks.isRemoved}
      data-changed={looks.isChanged}
      data-editing={editingColumn >= 0}
      tabIndex={-1}
    >
      <div className={styles.check} role="gridcell" aria-colindex={1} tabIndex={-1}>
        <label>
          <input
            type="checkbox"
            tabIndex={-1}
            checked={looks.isSelected}
            aria-label={`Select row ${index + 1}`}
            onClick={(event) => event.shiftKey && select('range')}
            onChange={(event) => (event.nativeEvent as MouseEvent).shiftKey || select('toggle')}
          />
        </label>
        {handlers.openerOf(row)}
      </div>
      {columns.map(({ key, width, cell, isNumber }, column) => (
        // biome-ignore lint/a11y/useKeyWithClickEvents: the grid has the keys of all cells
        <div
          key={key}
          id={cellId(id, { row: index, column })}
          className={styles.cell}
          role="gridcell"
          aria-colindex={column + 2}
          style={{ width }}
          data-number={isNumber}
          data-active={column === activeColumn}
          data-editing={column === editingColumn}
          tabIndex={-1}
          onClick={() => onActivate({ row: index, column })}
          onDoubleClick={() => handlers.onEdit({ row: index, column })}
        >
          {column === editingColumn ? handlers.editor(row, key) : cell(row)}
        </div>
      ))}
    </div>
  )
}

/** A row is made anew when it or how it looks has changed, not whenever something is scrolled. */
const GridRow = memo(
  PlainRow,
  (before, after) =>
    before.row === after.row &&
    before.top === after.top &&
    before.columns === after.columns &&
    before.activeColumn === after.activeColumn &&
    before.editingColumn === after.editingColumn &&
    after.editingColumn < 0 &&
    before.isSelected === after.isSelected &&
    before.isRemoved === after.isRemoved &&
    before.isChanged === after.isChanged,
) as typeof PlainRow

type WaitingProps<Row> = { readonly index: number; readonly top: number; readonly columns: readonly GridColumn<Row>[] }

function Waiting<Row>({ index, top, columns }: WaitingProps<Row>) {
  return (
    <div className={styles.row} style={{ top }} role="row" aria-rowindex={index + 2} aria-busy="true" tabIndex={-1}>
      <div className={styles.check} role="gridcell" aria-colindex={1} tabIndex={-1} />
      {columns.map(({ key, width }, column) => (
        <div
          key={key}
          className={styles.cell}
          role="gridcell"
          aria-colindex={column + 2}
          style={{ width }}
          tabIndex={-1}
        >
          <span className={styles.waiting} />
        </div>
      ))}
    </div>
  )
}
