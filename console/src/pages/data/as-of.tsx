import { useQuery } from '@tanstack/react-query'
import { ChevronLeft, ChevronRight, History } from 'lucide-react'
import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from 'react'
import { queryClient } from '../../app/client.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { Input } from '../../ui/field.tsx'
import { Problem } from '../../ui/states.tsx'
import { notifyError } from '../../ui/toast.tsx'
import styles from './as-of.module.css'
import { isCursor, placeOf, type Reach, timeAt } from './moments.ts'
import { type FindSteps, reachQuery, type Steps, type Subject, useSteps } from './steps.ts'
import { attempt, parseValue, textOf, timeText, zoneAt } from './values.ts'

type AsOfProps = { readonly value: string | undefined; readonly onChange: (asOf: string | undefined) => void }

/** Stops the clock, so that {@link AsOfBar} can go back from now; pressed again it is now. */
export function AsOfButton({ value, onChange }: AsOfProps) {
  const [isBusy, setBusy] = useState(false)
  const toggle = async () => {
    if (value !== undefined) return onChange(undefined)
    setBusy(true)
    try {
      const { now } = await queryClient.fetchQuery({ ...reachQuery, staleTime: 0 })
      onChange(new Date(now).toISOString())
    } catch (error) {
      notifyError(error)
    } finally {
      setBusy(false)
    }
  }
  return (
    <Button size="s" isBusy={isBusy} aria-pressed={value !== undefined} onClick={() => void toggle()}>
      <History aria-hidden="true" /> As of
    </Button>
  )
}

const hour = 3_600_000
const presets = [
  { label: 'An hour ago', ago: hour },
  { label: 'Yesterday', ago: 24 * hour },
  { label: 'Last week', ago: 7 * 24 * hour },
]

type AsOfBarProps = AsOfProps & {
  /** The shown collections or record, for the steps from change to change. */
  readonly subject: Subject
  /** The other actions on this moment. */
  readonly children?: ReactNode
}

/** Says that this is the past, and goes through it: by a slider, from change to change, or to a time. Nothing while it is now. */
export function AsOfBar({ value, ...rest }: AsOfBarProps) {
  return value === undefined ? null : <Past value={value} {...rest} />
}

type PastProps = AsOfBarProps & { readonly value: string }

function Past({ value, onChange, subject, children }: PastProps) {
  const { data: reach, error, refetch } = useQuery(reachQuery)
  const isTime = !isCursor(value)
  return (
    <section className={styles.bar} aria-label="As of">
      <p className={styles.banner} role="status">
        <History aria-hidden="true" />
        <span>
          As of <strong>{isTime ? timeText(value) : 'a moment of the past'}</strong>, read-only.
        </span>
        {children}
        <Button size="s" onClick={() => onChange(undefined)}>
          Back to now
        </Button>
      </p>
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {reach !== undefined && (
        <>
          <Slider {...{ value, onChange, subject, reach }} />
          <div className={styles.choices}>
            {presets.map(({ label, ago }) => (
              <Button
                key={label}
                size="s"
                kind="ghost"
                disabled={reach.now - ago < reach.oldest}
                onClick={() => onChange(new Date(reach.now - ago).toISOString())}
              >
                {label}
              </Button>
            ))}
            <TimeField key={value} {...{ value, onChange, reach }} />
          </div>
        </>
      )}
    </section>
  )
}

const day = 24 * hour

/** Arrows go from change to change, page keys by a day, and the ends are the oldest moment and now. */
function Slider({ subject, ...props }: SliderProps) {
  const find = useSteps(subject)
  const { reach } = props
  const { time, step, drop, press } = useWalk(props, find)
  const hint = useId()
  const [dragged, setDragged] = useState<number>()
  const shown = timeText(new Date(dragged === undefined ? time : timeAt(dragged, reach)).toISOString())
  const words =
    find === undefined ? 'Arrows go through time: your role sees no log.' : 'Arrows go from change to change.'
  return (
    <>
      <div className={styles.slider}>
        <IconButton label="The change before" size="s" onClick={() => step('before')}>
          <ChevronLeft />
        </IconButton>
        <input
          type="range"
          min={0}
          max={1}
          step="any"
          aria-label="Moment"
          aria-describedby={hint}
          aria-valuetext={shown}
          value={dragged ?? placeOf(time, reach)}
          onChange={({ target }) => setDragged(Number(target.value))}
          onPointerUp={({ currentTarget }) => void drop(Number(currentTarget.value)).then(() => setDragged(undefined))}
          onKeyDown={press}
        />
        <IconButton label="The change after" size="s" onClick={() => step('after')}>
          <ChevronRight />
        </IconButton>
      </div>
      <p id={hint} className={styles.ends}>
        <span>{timeText(new Date(reach.oldest).toISOString())} (oldest)</span>
        <span>{dragged === undefined ? words : shown}</span>
        <span>now</span>
      </p>
    </>
  )
}

type SliderProps = PastProps & { readonly reach: Reach }

/** Ways from the moment that is shown to others. */
function useWalk({ value, onChange, reach }: Omit<SliderProps, 'subject'>, find: FindSteps | undefined) {
  const looking = useRef<AbortController>(null)
  useEffect(() => () => looking.current?.abort(), [])
  const time = isCursor(value) ? reach.now : Date.parse(value)
  const asked = isCursor(value) ? new Date(time).toISOString() : value
  const go = (next: number) => onChange(new Date(Math.min(reach.now, Math.max(reach.oldest, next))).toISOString())
  const look = async (from: string, choose: (steps: Steps) => string | number) => {
    const look = new AbortController()
    looking.current = look
    try {
      const chosen = choose(await find!(from, look.signal))
      if (typeof chosen === 'number') go(chosen)
      else onChange(chosen)
    } catch (error) {
      if (!look.signal.aborted) notifyError(error)
    } finally {
      if (looking.current === look) looking.current = null
    }
  }
  const step = (way: 'before' | 'after') => {
    if (find === undefined) return go(timeAt(placeOf(time, reach) + (way === 'before' ? -0.01 : 0.01), reach))
    // A key that is held down goes on when the step before it has been found.
    if (looking.current === null)
      void look(asked, (steps) => steps[way] ?? (way === 'before' ? reach.oldest : reach.now))
  }
  /** To the change that made what was there: the same is seen, and the moment has its name. */
  const drop = async (place: number) => {
    const wanted = timeAt(place, reach)
    looking.current?.abort()
    if (find === undefined) return go(wanted)
    await look(new Date(wanted).toISOString(), ({ at }) =>
      at !== undefined && Date.parse(at) >= reach.oldest ? at : wanted,
    )
  }
  const keys: Readonly<Record<string, () => void>> = {
    ArrowLeft: () => step('before'),
    ArrowDown: () => step('before'),
    ArrowRight: () => step('after'),
    ArrowUp: () => step('after'),
    PageDown: () => go(time - day),
    PageUp: () => go(time + day),
    Home: () => go(reach.oldest),
    End: () => go(reach.now),
  }
  const press = (event: KeyboardEvent) => {
    const act = keys[event.key]
    if (act === undefined) return
    event.preventDefault()
    act()
  }
  return { time, step, drop, press }
}

/** A time in the browser's zone, which stands beside it. */
function TimeField({ value, onChange, reach }: TimeFieldProps) {
  const isTime = !isCursor(value)
  const [text, setText] = useState(textOf({ kind: 'datetime' }, isTime ? value : new Date(reach.now).toISOString()))
  const bound = (time: number) => textOf({ kind: 'datetime' }, new Date(time).toISOString())
  const id = useId()
  const read = attempt(() => new Date(String(parseValue({ kind: 'datetime' }, text, value))))
  const chosen = 'value' in read ? read.value : new Date(Number.NaN)
  const zone = zoneAt(Number.isNaN(chosen.getTime()) ? new Date(reach.now) : chosen)
  return (
    <form
      className={styles.field}
      onSubmit={(event) => {
        event.preventDefault()
        if (!Number.isNaN(chosen.getTime())) onChange(chosen.toISOString())
      }}
    >
      <Input
        size="s"
        type="datetime-local"
        step={1}
        required
        aria-label="Date and time"
        aria-describedby={id}
        min={bound(reach.oldest + 999)}
        max={bound(reach.now)}
        value={text}
        onChange={({ target }) => setText(target.value)}
      />
      <span id={id} className={styles.zone}>
        {zone}
      </span>
      <Button size="s" type="submit">
        Show
      </Button>
    </form>
  )
}

type TimeFieldProps = Pick<PastProps, 'value' | 'onChange'> & { readonly reach: Reach }
