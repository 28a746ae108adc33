import { Braces } from 'lucide-react'
import { type ReactNode, useId, useState } from 'react'
import type { Field } from '../../app/catalog.ts'
import { looks } from '../../ui/button.tsx'
import { Input, Select, TextArea } from '../../ui/field.tsx'
import { Menu } from '../../ui/menu.tsx'
import type { FilterCondition } from './filter.ts'
import styles from './filter-builder.module.css'
import type { Operator } from './operators.ts'
import { attempt, parseValue, sameValue, textOf, zoneAt } from './values.ts'

/** A variable for a value of the caller or of the moment, such as `$CURRENT_USER`. */
export type Variable = { readonly name: string; readonly label: string }

type OperandProps = {
  readonly field: Field | undefined
  readonly operator: Operator
  readonly condition: FilterCondition
  readonly variables?: readonly Variable[] | undefined
  readonly onChange: (condition: FilterCondition) => void
}

/** The control for what a condition compares with, as its operator takes it. */
export function OperandControl({ field: of, operator, condition, variables: given = [], onChange }: OperandProps) {
  const { operand, cast } = condition
  // What is compared as another type is typed as that type has it.
  const field = cast === undefined ? of : undefined
  const variables = momentKinds.has(kindOf(field)) ? [...given, ...momentsBeside(given)] : given
  const set = (next: unknown) => onChange({ ...condition, operand: next })
  if (operator.operand === 'flag')
    return (
      <Select
        size="s"
        aria-label="Value"
        value={String(operand)}
        onChange={({ target }) => set(target.value === 'true')}
        options={[
          { value: 'true', label: 'yes' },
          { value: 'false', label: 'no' },
        ]}
      />
    )
  if (operator.operand === 'json') return <JsonOperand value={operand} onChange={set} />
  const shared = { field, variables }
  if (operator.operand === 'list') return <ListOfValues {...shared} value={operand} onChange={set} />
  if (operator.operand === 'pair') {
    const [low, high] = Array.isArray(operand) ? operand : [operand, '']
    return (
      <div className={styles.pair} data-long={isTime(field)}>
        <OneValue {...shared} label="From" value={low} onChange={(next) => set([next, high])} />
        <OneValue {...shared} label="To" value={high} onChange={(next) => set([low, next])} />
      </div>
    )
  }
  return <OneValue {...shared} label="Value" value={operand} onChange={set} />
}

type ValueProps = {
  readonly field: Field | undefined
  readonly variables: readonly Variable[]
  readonly value: unknown
  readonly onChange: (value: unknown) => void
}

/** Of a field, or of the members of one. */
const kindOf = (field: Field | undefined) => field?.element ?? field?.kind ?? 'text'

const momentKinds: ReadonlySet<Field['kind']> = new Set(['date', 'datetime', 'datetime without zone'])

const isTime = (field: Field | undefined): boolean => momentKinds.has(kindOf(field)) && kindOf(field) !== 'date'

/** Moments that are reckoned when the condition is read. */
const moments: readonly Variable[] = [
  { name: '$NOW', label: 'this moment' },
  { name: '$NOW-DAYS_7', label: 'a week ago' },
]

const momentsBeside = (given: readonly Variable[]): readonly Variable[] =>
  moments.filter(({ name }) => !given.some((one) => one.name === name))

/** Values by commas; one variable alone may stand for a list. */
function ListOfValues({ field, variables, value, onChange }: ValueProps) {
  const text = Array.isArray(value) ? value.map((one) => memberText(field, one)).join(', ') : String(value ?? '')
  const partsOf = (typedText: string) =>
    typedText.split(',').flatMap((part) => (part.trim() === '' ? [] : [part.trim()]))
  const read = (typedText: string): unknown => {
    const parts = partsOf(typedText)
    return parts.length === 1 && isVariable(parts[0]) ? parts[0] : parts.map((part) => valueIn(field, part))
  }
  return (
    <WithVariables variables={variables} onChoose={onChange}>
      {(key) => (
        <TypedInput
          key={key}
          label="Values"
          placeholder={kindOf(field) === 'datetime' ? '2026-01-31 09:00, …' : 'one, two'}
          initial={text}
          zone={kindOf(field) === 'datetime' ? browserZone() : undefined}
          problemOf={(next) =>
            partsOf(next)
              .map((part) => problemWith(field, part))
              .find((one) => one !== undefined)
          }
          onText={(next) => onChange(read(next))}
        />
      )}
    </WithVariables>
  )
}

/** In the browser's zone, where that is the same time again. */
function memberText(field: Field | undefined, member: unknown): string {
  if (kindOf(field) !== 'datetime' || typeof member !== 'string') return String(member)
  const text = textOf({ kind: 'datetime' }, member)
  const back = attempt(() => parseValue({ kind: 'datetime' }, text))
  return 'value' in back && sameValue(back.value, member) ? text.replace('T', ' ') : member
}

const browserZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone

const isVariable = (value: unknown): boolean => typeof value === 'string' && value.startsWith('$')

function OneValue({ field, variables, label, value, onChange }: ValueProps & { readonly label: string }) {
  const isChosen = (field?.kind === 'enum' || field?.kind === 'boolean') && !isVariable(value)
  const text = initialText(field, value)
  const type = controlOf(field, value, text)
  return (
    <WithVariables variables={variables} onChoose={onChange}>
      {(key) =>
        isChosen ? (
          <Select
            size="s"
            aria-label={label}
            value={String(value ?? '')}
            onChange={({ target }) => onChange(valueIn(field, target.value))}
            options={['', ...(field.kind === 'boolean' ? ['true', 'false'] : field.options)]}
          />
        ) : (
          <TypedInput
            key={key}
            label={label}
            type={type}
            initial={text}
            zone={kindOf(field) === 'datetime' && !isVariable(value) ? zoneOf(value) : undefined}
            problemOf={(next) => problemWith(field, next)}
            onText={(next) => onChange(valueIn(field, next, value))}
          />
        )
      }
    </WithVariables>
  )
}

function initialText(field: Field | undefined, value: unknown): string {
  if (typeof value === 'string')
    return isTime(field) && !isVariable(value) ? textOf({ kind: kindOf(field) }, value) : value
  return field === undefined ? String(value ?? '') : textOf(field, value)
}

/** What the control of a time can show: of a year beyond 9999, or of a day alone, it would show nothing. */
const shownAsTime = /^(?:\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)?$/

/** A variable is typed. */
function controlOf(field: Field | undefined, value: unknown, text: string): 'date' | 'datetime-local' | 'text' {
  if (isVariable(value)) return 'text'
  if (isTime(field)) return shownAsTime.test(text) ? 'datetime-local' : 'text'
  return field?.kind === 'date' ? 'date' : 'text'
}

/** The browser's zone as it is at that time. */
function zoneOf(value: unknown): string {
  const time = new Date(String(value))
  return Number.isNaN(time.getTime()) ? browserZone() : zoneAt(time)
}

type WithVariablesProps = {
  readonly variables: readonly Variable[]
  readonly onChoose: (name: string) => void
  /** The control; another key when a variable has been chosen, so that it shows this. */
  readonly children: (key: number) => ReactNode
}

/** A control with the variables that it may have instead of a value. */
function WithVariables({ variables, onChoose, children }: WithVariablesProps) {
  const [chosen, setChosen] = useState(0)
  if (variables.length === 0) return children(chosen)
  return (
    <div className={styles.withVariables}>
      {children(chosen)}
      <Menu
        title="Instead of a value"
        align="end"
        trigger={
          <button type="button" {...looks({ kind: 'ghost', size: 's' }, styles.variables)} aria-label="Use a variable">
            <Braces aria-hidden="true" />
          </button>
        }
        entries={variables.map(({ name, label }) => ({
          label: (
            <span className={styles.variable}>
              <code>{name}</code>
              <small>{label}</small>
            </span>
          ),
          onSelect: () => {
            setChosen(chosen + 1)
            onChoose(name)
          },
        }))}
      />
    </div>
  )
}

type TypedInputProps = {
  readonly label: string
  readonly initial: string
  readonly placeholder?: string
  readonly type?: string
  /** In which what is typed is meant. */
  readonly zone?: string | undefined
  readonly problemOf: (text: string) => string | undefined
  readonly onText: (text: string) => void
}

/** Keeps what is typed as it is, while its value is read from it. */
function TypedInput({ label, initial, placeholder, type = 'text', zone, problemOf, onText }: TypedInputProps) {
  const id = useId()
  const [text, setText] = useState(initial)
  const problem = problemOf(text)
  return (
    <div className={styles.typed}>
      <Input
        size="s"
        type={type}
        {...(type === 'datetime-local' && { step: 1 })}
        // Its form is not sent with it.
        ref={(input) => input?.setCustomValidity(problem ?? '')}
        aria-label={label}
        aria-describedby={zone === undefined ? undefined : id}
        aria-invalid={problem === undefined ? undefined : true}
        placeholder={placeholder}
        value={text}
        onChange={({ target }) => {
          setText(target.value)
          onText(target.value)
        }}
      />
      {zone !== undefined && <small id={id}>{zone}</small>}
      {problem !== undefined && <small role="alert">{problem}</small>}
    </div>
  )
}

/** Whether a text is a value of the field: of what is compared with a list, of its members. */
const readIn = (field: Field | undefined, text: string, before?: unknown) =>
  field === undefined || text.startsWith('$') || text === ''
    ? { value: text }
    : attempt(() => parseValue({ kind: kindOf(field) }, text, before))

/** Why a text is no time. The server would take some of what is none here for one of UTC. */
function problemWith(field: Field | undefined, text: string): string | undefined {
  const read = readIn(field, text)
  return isTime(field) && 'error' in read ? read.error.message : undefined
}

/**
 * As the field has it, and nothing yet for what is no time; variables, columns and all else go as they were typed, and the server says
 * what is wrong.
 */
function valueIn(field: Field | undefined, text: string, before?: unknown): unknown {
  const read = readIn(field, text, before)
  return 'value' in read ? read.value : isTime(field) ? '' : text
}

function JsonOperand({ value, onChange }: { readonly value: unknown; readonly onChange: (value: unknown) => void }) {
  const [text, setText] = useState(() => JSON.stringify(value) ?? '')
  const [isWrong, setWrong] = useState(false)
  return (
    <TextArea
      isCode
      rows={2}
      aria-label="Value as JSON"
      aria-invalid={isWrong}
      value={text}
      onChange={({ target }) => {
        setText(target.value)
        try {
          onChange(JSON.parse(target.value))
          setWrong(false)
        } catch {
          setWrong(true)
        }
      }}
    />
  )
}
