import { useState } from 'react'
import { Field, TextArea } from '../../ui/field.tsx'
import { isNothing } from './content.ts'

type JsonProps = {
  readonly label: string
  readonly hint: string
  readonly initial: unknown
  /** Null for nothing, undefined for what is no object. */
  readonly onChange: (value: object | null | undefined) => void
}

/** A member of a rule as JSON. */
export function Json({ label, hint, initial, onChange }: JsonProps) {
  const [text, setText] = useState(textOf(initial))
  const error = objectIn(text) === undefined ? 'This is no JSON object' : undefined
  return (
    <Field label={label} note="JSON" hint={hint} error={error}>
      {(attributes) => (
        <TextArea
          {...attributes}
          isCode
          rows={4}
          value={text}
          onChange={({ target }) => {
            setText(target.value)
            onChange(objectIn(target.value))
          }}
        />
      )}
    </Field>
  )
}

export const textOf = (value: unknown): string => (isNothing(value) ? '' : JSON.stringify(value, null, 2))

/** Null for nothing, undefined for what is no JSON object. */
export function objectIn(text: string): object | null | undefined {
  if (text.trim() === '') return null
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined
  } catch {
    return undefined
  }
}
