import { type RefObject, useEffect, useRef, useState } from 'react'
import { explain } from '../app/errors.ts'
import { ofFields } from '../app/refusals.ts'

export type Refusal<Form extends HTMLElement> = {
  /** Where the fields are. */
  readonly form: RefObject<Form | null>
  readonly error: unknown
  /** What it says of each field that has not been changed since. */
  readonly fields: Readonly<Record<string, string>>
  readonly set: (error: unknown) => void
  /** Before another attempt. */
  readonly clear: () => void
  /** The field has another value now. */
  readonly forget: (field: string) => void
}

/** What the server has refused of a form, field by field. The first of these gets the focus, in the middle of the window. */
export function useRefusal<Form extends HTMLElement>(names: readonly string[]): Refusal<Form> {
  const form = useRef<Form>(null)
  const [refused, setRefused] = useState<{
    readonly error: unknown
    readonly fields: Readonly<Record<string, string>>
  }>()
  const { error, fields = {} } = refused ?? {}
  useEffect(() => {
    if (error === undefined) return
    const first = form.current?.querySelector<HTMLElement>('[aria-invalid=true]')
    first?.focus({ preventScroll: true })
    first?.scrollIntoView({ block: 'center' })
  }, [error])
  return {
    form,
    error,
    fields,
    set: (failure) => setRefused({ error: failure, fields: ofFields(explain(failure), names) }),
    clear: () => setRefused(undefined),
    forget: (field) =>
      setRefused((before) => {
        if (before === undefined || !(field in before.fields)) return before
        const { [field]: _gone, ...others } = before.fields
        return { ...before, fields: others }
      }),
  }
}
