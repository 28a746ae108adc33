import { Braces } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import type { Field } from '../../app/catalog.ts'
import { looks } from '../../ui/button.tsx'
import { Input, Select, TextArea } from '../../ui/field.tsx'
import { Menu } from '../../ui/menu.tsx'
import type { FilterCondition } from './filter.ts'
import styles from './filter-builder.module.css'
import type { Operator } from './operators.ts'
import { parseValue, textOf } from './values.ts'

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
export function OperandControl({ field, operator, condition, variables = [], onChange }: OperandProps) {
  const { operand } = condition
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
      <div className={styles.pair}>
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

/** Values by commas; one variable alone may stand for a list. */
function ListOfValues({ field, variables, value, onChange }: ValueProps) {
  const text = Array.isArray(value) ? value.map((one) => String(one)).join(', ') : String(value ?? '')
  const read = (typedText: string): unknown => {
    const parts = typedText.split(',').flatMap((part) => (part.trim() === '' ? [] : [part.trim()]))
    return parts.length === 1 && isVariable(parts[0]) ? parts[0] : parts.map((part) => valueIn(field, part))
  }
  return (
    <WithVariables variables={variables} onChoose={onChange}>
      {(key) => (
        <TypedInput
          key={key}
          label="Values"
          placeholder="one, two"
          initial={text}
          onText={(next) => onChange(read(next))}
        />
      )}
    </WithVariables>
  )
}

const isVariable = (value: unknown): boolean => typeof value === 'string' && value.startsWith('$')

function OneValue({ field, variables, label, value, onChange }: ValueProps & { readonly label: string }) {
  const isChosen = (field?.kind === 'enum' || field?.kind === 'boolean') && !isVariable(value)
  const isDate = field?.kind === 'date' && !isVariable(value)
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
            type={isDate ? 'date' : 'text'}
            placeholder={field?.kind === 'datetime' ? '2026-01-31T09:00 or $NOW-DAYS_7' : ''}
            initial={
              typeof value === 'string' ? value : field === undefined ? String(value ?? '') : textOf(field, value)
            }
            onText={(text) => onChange(valueIn(field, text))}
          />
        )
      }
    </WithVariables>
  )
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
  readonly onText: (text: string) => void
}

/** Keeps what is typed as it is, while its value is read from it. */
function TypedInput({ label, initial, placeholder, type = 'text', onText }: TypedInputProps) {
  const [text, setText] = useState(initial)
  return (
    <Input
      size="s"
      type={type}
      aria-label={label}
      placeholder={placeholder}
      value={text}
      onChange={({ target }) => {
        setText(target.value)
        onText(target.value)
      }}
    />
  )
}

/** As the field has it; variables, columns and what does not fit go as they were typed, and the server says what is wrong. */
function valueIn(field: Field | undefined, text: string): unknown {
  if (field === undefined || text.startsWith('$') || text === '') return text
  try {
    // What a list is compared with are its members.
    return parseValue({ kind: field.element ?? field.kind }, text)
  } catch {
    return text
  }
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
