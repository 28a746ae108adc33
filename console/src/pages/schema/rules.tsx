import { useState } from 'react'
import type { FieldKind } from '../../app/definition.ts'
import { Checkbox, Field, Input, Select, TextField } from '../../ui/field.tsx'
import { type Entry, objectOf, withMember } from './definitions.ts'
import styles from './schema.module.css'

type RulesProps = {
  readonly entry: Entry
  readonly kind: FieldKind
  /** Undefined for none. */
  readonly onChange: (validate: Entry | undefined) => void
}

const formats: Readonly<Record<string, string>> = {
  isEmail: 'an e-mail address',
  isUrl: 'an address of the web',
  isIP: 'an IP address',
  isUUID: 'a UUID',
}

/** The rules for values; a rule may carry a failure text of its own, which stays. */
export function Rules({ entry, kind, onChange }: RulesProps) {
  const validate = objectOf(entry.validate)
  const isText = kind === 'text' || kind === 'long text'
  const isNumber = kind === 'integer' || kind === 'decimal' || kind === 'float'
  if (!isText && !isNumber && kind !== 'array' && kind !== 'range') return null
  const change = (next: Entry) => onChange(Object.keys(next).length === 0 ? undefined : next)
  const set = (rule: string, argument: unknown) => change(withMember(validate, rule, argued(validate[rule], argument)))
  const count = Object.keys(validate).length
  return (
    <details className={styles.part} open={count > 0}>
      <summary>Rules for values{count > 0 ? ` (${count})` : ''}</summary>
      <div className={styles.form}>
        {!isText && (
          <div className={styles.pair}>
            <Bound label="At least" rule="min" validate={validate} onChange={set} />
            <Bound label="At most" rule="max" validate={validate} onChange={set} />
          </div>
        )}
        {isText && <TextRules validate={validate} onChange={change} set={set} />}
      </div>
    </details>
  )
}

type Setter = (rule: string, argument: unknown) => void

type BoundProps = {
  readonly label: string
  readonly rule: string
  readonly validate: Entry
  readonly onChange: Setter
}

function Bound({ label, rule, validate, onChange }: BoundProps) {
  return (
    <TextField
      label={label}
      type="number"
      step="any"
      value={String(argumentOf(validate[rule]) ?? '')}
      onChange={({ target }) => onChange(rule, target.value === '' ? undefined : Number(target.value))}
    />
  )
}

type TextRulesProps = { readonly validate: Entry; readonly onChange: (validate: Entry) => void; readonly set: Setter }

function TextRules({ validate, onChange, set }: TextRulesProps) {
  const [least, most] = listOf(argumentOf(validate.len))
  const [pattern, flags] = listOf(argumentOf(validate.matches))
  const format = Object.keys(formats).find((name) => argumentOf(validate[name]) === true) ?? ''
  const length = (place: 0 | 1, text: string) => {
    const number = text === '' ? undefined : Number(text)
    const [from, to] = place === 0 ? [number, most] : [least, number]
    set('len', from === undefined && to === undefined ? undefined : [from ?? 0, ...(to === undefined ? [] : [to])])
  }
  const match = (text: string, ignoresCase: boolean) =>
    set('matches', text === '' ? undefined : ignoresCase ? [text, 'i'] : text)
  return (
    <>
      <div className={styles.pair}>
        <TextField
          label="Shortest"
          type="number"
          min={0}
          value={String(least ?? '')}
          onChange={({ target }) => length(0, target.value)}
        />
        <TextField
          label="Longest"
          type="number"
          min={0}
          value={String(most ?? '')}
          onChange={({ target }) => length(1, target.value)}
        />
      </div>
      <Checkbox
        label="Not empty and not only blanks"
        checked={argumentOf(validate.notEmpty) === true}
        onChange={({ target }) => set('notEmpty', target.checked ? true : undefined)}
      />
      <Field label="Must be">
        {(attributes) => (
          <Select
            {...attributes}
            value={format}
            onChange={({ target }) => {
              const others = Object.fromEntries(Object.entries(validate).filter(([name]) => name !== format))
              onChange(target.value === '' ? others : { ...others, [target.value]: true })
            }}
            options={[
              { value: '', label: 'any text' },
              ...Object.entries(formats).map(([value, label]) => ({ value, label })),
            ]}
          />
        )}
      </Field>
      <PatternField pattern={String(pattern ?? '')} ignoresCase={flags === 'i'} onChange={match} />
    </>
  )
}

type PatternProps = {
  readonly pattern: string
  readonly ignoresCase: boolean
  readonly onChange: (pattern: string, ignoresCase: boolean) => void
}

/** The choice about the case stays while the pattern is typed anew. */
function PatternField({ pattern, ignoresCase: before, onChange }: PatternProps) {
  const [ignoresCase, setIgnores] = useState(before)
  return (
    <>
      <Field label="Matches the pattern" hint="RE2; anywhere in the text unless ^ and $ say otherwise.">
        {(attributes) => (
          <Input
            {...attributes}
            spellCheck={false}
            value={pattern}
            onChange={({ target }) => onChange(target.value, ignoresCase)}
          />
        )}
      </Field>
      <Checkbox
        label="The pattern ignores upper and lower case"
        checked={ignoresCase}
        onChange={({ target }) => {
          setIgnores(target.checked)
          onChange(pattern, target.checked)
        }}
      />
    </>
  )
}

/** A rule's argument, which may come with a failure text: `{args, msg}`. */
function argumentOf(rule: unknown): unknown {
  return Object.hasOwn(objectOf(rule), 'args') ? objectOf(rule).args : rule
}

function argued(before: unknown, argument: unknown): unknown {
  const { msg } = objectOf(before)
  return argument === undefined || msg === undefined ? argument : { args: argument, msg }
}

const listOf = (value: unknown): readonly unknown[] =>
  Array.isArray(value) ? value : value === undefined ? [] : [value]
