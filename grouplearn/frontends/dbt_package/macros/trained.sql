{#- A model whose SQL is a TRAIN without its beginning: the clauses from USING on. It is trained anew, and replaces what had
    its name only when it is done: until then, and where it fails, that stays. With ``refresh``, the clauses of REFRESH or true, a
    model that is there is refreshed. -#}
{% materialization trained, adapter='duckdb', supported_languages=['sql'] %}

  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='view') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {#- What was a plain table or view before it became a model goes. Dropping what is a model already is TRAIN's. It goes in
      the transaction that trains, so that a TRAIN that fails puts it back; adapter.drop_relation would begin none. -#}
  {%- set former = existing if existing is not none and not grouplearn.is_trained(this) else none -%}
  {%- if former is not none -%}
    {%- if adapter.disable_transactions() -%}
      {% do exceptions.raise_compiler_error(
        'the ' ~ former.type ~ ' ' ~ former ~ ' is in the place of the model, and with disable_transactions a TRAIN that'
        ~ ' fails would lose it. Drop it yourself, or run once without disable_transactions.') %}
    {%- endif -%}
    {% call statement('drop_former') -%}
      DROP {{ former.type }} {{ former }} CASCADE
    {%- endcall %}
  {%- endif -%}

  {%- set refresh = config.get('refresh') -%}
  {% call statement('main') -%}
    {%- if refresh is not none and not should_full_refresh() and existing is not none and former is none %}
    REFRESH MODEL {{ target }} {{ '' if refresh is true else refresh }}
    {%- else %}
    TRAIN OR REPLACE MODEL {{ target }}
    {{ compiled_code }}
    {%- endif %}
  {%- endcall %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do persist_docs(target, model) %}
  {{ adapter.commit() }}
  {%- if former is not none -%}
    {% do adapter.cache_dropped(former) %}
  {%- endif -%}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro is_trained(relation) %}
  {%- for row in run_query('SHOW MODELS').rows -%}
    {%- if row['database'] | lower == relation.database | lower and row['schema'] | lower == relation.schema | lower
        and row['model'] | lower == relation.identifier | lower -%}
      {{ return(true) }}
    {%- endif -%}
  {%- endfor -%}
  {{ return(false) }}
{% endmacro %}

{#- The rows of ``source``, a relation, as ``model`` predicts them: FROM {{ grouplearn.predict(ref('m'), ref('rows')) }} -#}
{% macro predict(model, source) -%}
  {{ model.incorporate(path={'identifier': model.identifier ~ '_predict'}) }}({{ source }})
{%- endmacro %}
