import { Link } from '@tanstack/react-router'
import { Checkbox } from '../../ui/field.tsx'
import { inWords } from './content.ts'
import styles from './permissions.module.css'
import type { NamedRule } from './rules.ts'

type NamedChoiceProps = {
  /** By id; null for a rule of its own. */
  readonly chosen: readonly string[] | null
  readonly rules: readonly NamedRule[]
  readonly onChoose: (ids: readonly string[]) => void
  readonly onOwn: () => void
}

/** Whether a permission has a rule of its own or follows named ones, and which. */
export function NamedChoice({ chosen, rules, onChoose, onOwn }: NamedChoiceProps) {
  const gone = (chosen ?? []).filter((id) => rules.every((rule) => rule.id !== id))
  const toggle = (id: string, isChosen: boolean) =>
    onChoose(isChosen ? [...(chosen ?? []), id] : (chosen ?? []).filter((one) => one !== id))
  return (
    <fieldset className={styles.fields}>
      <legend>What it follows</legend>
      <div className={styles.kinds}>
        <label>
          <input type="radio" checked={chosen === null} onChange={onOwn} /> A rule of its own
        </label>
        <label>
          <input type="radio" checked={chosen !== null} onChange={() => onChoose(chosen ?? [])} /> Named rules
        </label>
      </div>
      {chosen !== null && (
        <div className={styles.named}>
          {rules.map((rule) => (
            <Checkbox
              key={rule.id}
              label={
                <>
                  {rule.name}
                  <small>{inWords(rule)}</small>
                </>
              }
              checked={chosen.includes(rule.id)}
              onChange={({ target }) => toggle(rule.id, target.checked)}
            />
          ))}
          {gone.map((id) => (
            <Checkbox
              key={id}
              label={
                <>
                  <code>{id}</code>
                  <small>A rule that is gone. It grants nothing.</small>
                </>
              }
              checked
              onChange={() => toggle(id, false)}
            />
          ))}
          {chosen.length === 0 && (
            <p className={styles.wrong} role="alert">
              Choose a rule.
            </p>
          )}
          <p className={styles.hint}>
            With several rules, an item needs to meet only one, and the fields of all rules are granted.
          </p>
          <Link to="/permissions/rules">Edit named rules</Link>
        </div>
      )}
    </fieldset>
  )
}
